//! The standard output, where results go, and the standard error, where everything else goes. Whoever reads them may stop
//! reading at any line.

use std::ffi::OsString;
use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal as _, Result, Write, stderr, stdout};

use anyhow::Context as _;

/// Writes a line of a result. A reader that has gone, as `head` does when it has seen enough, is no failure.
///
/// # Errors
/// If it cannot be written for any other reason, such as a full disk.
pub(crate) fn line(line: Arguments<'_>) -> anyhow::Result<()> {
    judged(stdout().write_fmt(format_args!("{line}\n")))
}

/// What a write to the standard output came to.
///
/// # Errors
/// As [`line`].
pub(crate) fn judged(written: Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes a line for a person to the standard error. If that is closed, nobody is there to be told.
pub(crate) fn note(line: Arguments<'_>) {
    let _ = stderr().write_fmt(format_args!("{line}\n"));
}

/// Whether what matters most on the standard output is to be bold: on a terminal, unless `NO_COLOR` says otherwise
/// (<https://no-color.org>).
pub(crate) fn is_bold() -> bool {
    wants_bold(stdout().is_terminal(), std::env::var_os("NO_COLOR"))
}

fn wants_bold(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.is_none_or(|set| set.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bold_is_for_terminals_whose_user_does_not_object() {
        assert!(wants_bold(true, None) && wants_bold(true, Some(OsString::new())));
        assert!(!wants_bold(true, Some("1".into())) && !wants_bold(false, None));
    }
}
