//! Results on stdout and notes on stderr. The reader may close either at any line.

use std::ffi::OsString;
use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal as _, Result, Write, stderr, stdout};

use anyhow::Context as _;
use serde::Serialize;

use crate::Format;

/// Writes a line to stdout. A closed pipe, as `head` leaves behind, is no error.
///
/// # Errors
/// If stdout cannot be written for any other reason, such as a full disk.
pub fn line(line: Arguments<'_>) -> anyhow::Result<()> {
    text(format_args!("{line}\n"))
}

/// Writes text that ends its own lines to stdout.
///
/// # Errors
/// As [`line()`].
pub fn text(text: Arguments<'_>) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    finish(out.write_fmt(text).and_then(|()| out.flush()))
}

/// Writes a value to stdout as JSON for people and programs: indented, with a line end.
///
/// # Errors
/// As [`line()`], or if the value cannot be written as JSON.
pub fn json(value: &(impl Serialize + ?Sized)) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("the result cannot be written as JSON")?;
    line(format_args!("{text}"))
}

/// Writes a value to stdout in `format`. `as_text`: its lines.
///
/// # Errors
/// As [`json()`].
pub fn result<T: Serialize + ?Sized>(
    value: &T,
    format: Format,
    as_text: impl FnOnce(&T) -> String,
) -> anyhow::Result<()> {
    match format {
        Format::Text => text(format_args!("{}", as_text(value))),
        Format::Json => json(value),
    }
}

/// Writes bytes to stdout.
///
/// # Errors
/// As [`line()`].
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    finish(out.write_all(bytes).and_then(|()| out.flush()))
}

/// The result of a write to stdout: a closed pipe is no error.
///
/// # Errors
/// As [`line()`].
pub fn finish(written: Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes a line to stderr. A closed stderr is no error.
pub fn note(line: Arguments<'_>) {
    let _ = stderr().write_fmt(format_args!("{line}\n"));
}

/// Whether the most important part of a result is printed bold: on a terminal, unless `NO_COLOR` is set
/// (<https://no-color.org>).
pub fn is_bold() -> bool {
    wants_bold(stdout().is_terminal(), std::env::var_os("NO_COLOR"))
}

fn wants_bold(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.is_none_or(|set| set.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bold_is_for_terminals_without_no_color() {
        assert!(wants_bold(true, None) && wants_bold(true, Some(OsString::new())));
        assert!(!wants_bold(true, Some("1".into())) && !wants_bold(false, None));
    }
}
