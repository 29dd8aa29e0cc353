//! Why the tool stops, by what it tells its caller to do.

use std::fmt;
use std::path::Path;

/// One line for people, one exit code for scripts.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An output could not be written.
    Output(String),
    /// What was asked for cannot be: arguments, a spec.
    Usage(String),
    /// An input cannot be read as what it should be.
    Input(String),
    /// A payload that was cut, changed or made wrong.
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

    /// `path` should be safetensors.
    pub(crate) fn input(path: &Path, why: impl fmt::Display) -> Self {
        Self::Input(format!("{}: {why}", path.display()))
    }

    /// `path` is one of the tool's own files, whose bytes are wrong.
    pub(crate) fn corrupt(path: &Path, why: impl fmt::Display) -> Self {
        Self::Corrupt(format!("{}: {why}", path.display()))
    }

    /// `path` cannot be written.
    pub(crate) fn output(path: &Path, why: impl fmt::Display) -> Self {
        Self::Output(format!("cannot write {}: {why}", path.display()))
    }

    /// What decoding `path` ended with: another version or layout is no corruption.
    pub(crate) fn payload(path: &Path, why: &fl_compress::Error) -> Self {
        match why {
            fl_compress::Error::Mismatch(_) => Self::input(path, why),
            _ => Self::corrupt(path, why),
        }
    }
}

impl fmt::Display for Failure {
    /// On one line, whatever names and messages hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Output(text) | Self::Usage(text) | Self::Input(text) | Self::Corrupt(text)) = self;
        let line: Vec<&str> = text.split_whitespace().collect();
        f.write_str(&line.join(" "))
    }
}
