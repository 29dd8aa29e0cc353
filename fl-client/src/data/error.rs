//! Errors of data, by what their owner can do about them.

use std::path::{Path, PathBuf};

/// Why examples could not be loaded.
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
        /// The system's error.
        reason: String,
    },
    /// A file is shorter or longer than its header says.
    #[error("{}: expected {expected} bytes of {what}, found {found}; the file is cut short or damaged: fetch it again", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        what: &'static str,
        /// Bytes according to the header.
        expected: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// A file has the wrong content.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// The configuration has a value that is out of range or unknown.
    #[error("`{key}` {reason}")]
    Config {
        /// The key of the configuration.
        key: &'static str,
        /// What is wrong, and what is allowed.
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
    /// Whether the configuration or the files are at fault, and not the disk or the network.
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
