//! What can be wrong with data, by what its owner can do about it.

use std::path::{Path, PathBuf};

/// Why examples could not be had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A file is not where the configuration says.
    #[error("{}: no such file; {hint}", path.display())]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
        /// What to do.
        hint: String,
    },
    /// A file could not be opened, read or written.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file ends before its header says, or goes on after it.
    #[error("{}: expected {expected} bytes of {what}, found {found}; the file is cut short or damaged: fetch it again", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        what: &'static str,
        /// Bytes the header asks for.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A file holds something else than expected.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, where.
        reason: String,
    },
    /// The configuration asks for something that cannot be.
    #[error("`{key}` {reason}")]
    Config {
        /// The key of the configuration.
        key: &'static str,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// A download failed.
    #[error("{reason}")]
    Network {
        /// What failed, and what to do without a network.
        reason: String,
    },
}

impl Error {
    /// Whether the configuration or the files are wrong; otherwise disk or network failed.
    pub fn is_input(&self) -> bool {
        !matches!(self, Self::Io { .. } | Self::Network { .. })
    }
}

impl Error {
    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }

    pub(crate) fn malformed(path: &Path, reason: impl Into<String>) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn config(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Config {
            key,
            reason: reason.into(),
        }
    }
}
