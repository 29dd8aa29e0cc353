//! The standard output: results go there, and whoever reads them may stop reading at any line.

use std::fmt::Arguments;
use std::io::{ErrorKind, Result, Write, stdout};

use anyhow::Context;

/// Writes a line. A reader that has gone, as `head` does when it has seen enough, is no failure.
///
/// # Errors
/// If it cannot be written for any other reason, such as a full disk.
pub(super) fn line(line: Arguments<'_>) -> anyhow::Result<()> {
    text(format_args!("{line}\n"))
}

/// Writes text that ends its own lines.
///
/// # Errors
/// As [`line`].
pub(super) fn text(text: Arguments<'_>) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    judged(out.write_fmt(text).and_then(|()| out.flush()))
}

/// Writes bytes as they are.
///
/// # Errors
/// As [`line`].
pub(super) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    judged(out.write_all(bytes).and_then(|()| out.flush()))
}

/// What a write to the standard output came to.
///
/// # Errors
/// As [`line`].
pub(super) fn judged(written: Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
