//! Errors of the tool, one variant per exit code.

use std::fmt;
use std::path::Path;

/// An error: one line on stderr and one exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An output could not be written.
    Output(String),
    /// Invalid arguments or spec.
    Usage(String),
    /// An input is missing, or is not of the required kind.
    Input(String),
    /// A truncated, changed or forged payload.
    Corrupt(String),
}

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Input(_) => 3,
            Self::Corrupt(_) => 4,
        }
    }

    /// An error of the input `path`.
    pub(crate) fn input(path: &Path, why: impl fmt::Display) -> Self {
        Self::Input(format!("{}: {why}", path.display()))
    }

    /// `path` is a file of this tool with invalid bytes.
    pub(crate) fn corrupt(path: &Path, why: impl fmt::Display) -> Self {
        Self::Corrupt(format!("{}: {why}", path.display()))
    }

    pub(crate) fn output(path: &Path, why: impl fmt::Display) -> Self {
        Self::Output(format!("cannot write {}: {why}", path.display()))
    }

    /// The error of decoding `path`. Another version or layout is an input error, not corruption.
    pub(crate) fn payload(path: &Path, why: &fl_compress::Error) -> Self {
        match why {
            fl_compress::Error::Mismatch(_) => Self::input(path, why),
            _ => Self::corrupt(path, why),
        }
    }
}

impl fmt::Display for Failure {
    /// Collapses white space, so that names and messages with line breaks stay on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Output(text) | Self::Usage(text) | Self::Input(text) | Self::Corrupt(text)) = self;
        let line: Vec<&str> = text.split_whitespace().collect();
        f.write_str(&line.join(" "))
    }
}
