//! Errors of files and options, and the files that commands read.

use std::fmt::Display;
use std::path::Path;

use fl_client::Error;

/// An error of wrong usage: a file or an option, and why.
pub(crate) fn wrong(what: impl Display, why: impl Display) -> Error {
    Error::Config(format!("{what}: {why}"))
}

/// The text of a file.
///
/// # Errors
/// `Config` if it cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|e| wrong(path.display(), format_args!("cannot read: {e}")))
}
