//! Where results go: the standard output, or a file that is replaced atomically. The reader of the standard output may close
//! it at any line.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Result, Write, stdout};
use std::path::Path;

use anyhow::{Context, ensure};
use clap::ValueEnum;

/// The format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// Writes a line. A closed pipe is no error: `head` closes it when it has read enough.
///
/// # Errors
/// If writing fails for another reason, such as a full disk.
pub(super) fn line(line: Arguments<'_>) -> anyhow::Result<()> {
    text(format_args!("{line}\n"))
}

/// Writes text that has its line ends.
///
/// # Errors
/// As [`line`].
pub(super) fn text(text: Arguments<'_>) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    unless_closed(out.write_fmt(text).and_then(|()| out.flush()))
}

/// Writes bytes as they are.
///
/// # Errors
/// As [`line`].
pub(super) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    unless_closed(out.write_all(bytes).and_then(|()| out.flush()))
}

/// The result of a write to the standard output, for which a closed pipe is no error.
///
/// # Errors
/// As [`line`].
pub(super) fn unless_closed(written: Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Whether `-o` names the standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(super) fn is_terminal() -> bool {
    stdout().is_terminal()
}

/// Writes to `output`, or to `file` in the folder `output`.
pub(super) fn write_to(output: Option<&Path>, file: Option<&str>, bytes: &[u8]) -> anyhow::Result<()> {
    match (output.filter(|path| !is_stdout(path)), file) {
        (None, _) => self::bytes(bytes),
        (Some(path), None) => replace(path, bytes),
        (Some(folder), Some(file)) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
            replace(&folder.join(file), bytes)
        }
    }
}

/// Writes a file beside `path` and renames it, so that `path` is complete at any moment.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    ensure!(!special, "{} is not a regular file and is not replaced", path.display());
    let side = path.with_extension(format!("tmp-{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        std::fs::write(&side, bytes)?;
        std::fs::rename(&side, path)
    };
    write()
        .inspect_err(|_| drop(std::fs::remove_file(&side)))
        .with_context(|| format!("cannot write {}", path.display()))
}
