//! Errors of data, by what their owner can do about them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Longest reason, in bytes; that of a longer one is its beginning and its end.
const LONGEST_REASON: usize = 1024;

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

    /// An error of reading a file that may be compressed.
    pub(crate) fn unread(path: &Path, error: &std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                Self::malformed(path, format!("cannot be decompressed ({error}); fetch it again"))
            }
            _ => Self::io(path, error),
        }
    }

    /// A file has `found` bytes of `what` instead of `expected`.
    pub(crate) fn size(path: &Path, what: &'static str, expected: u64, found: u64) -> Self {
        Self::Size {
            path: path.to_owned(),
            what,
            expected,
            found,
        }
    }

    pub(crate) fn malformed(path: &Path, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        // A cell or a key of the file that the reason quotes may be as long as the file.
        if reason.len() > LONGEST_REASON {
            let head = LONGEST_REASON / 2;
            let tail = reason.len() - LONGEST_REASON / 2;
            reason.replace_range(
                reason.floor_char_boundary(head)..reason.ceil_char_boundary(tail),
                " .. ",
            );
        }
        Self::Malformed {
            path: path.to_owned(),
            reason,
        }
    }

    pub(crate) fn config(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Config {
            key,
            reason: reason.into(),
        }
    }
}

/// An error of data as the client tells it: [`fl_client::Error::Config`] if the configuration or the files are at fault.
pub(crate) fn told(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(own) if own.is_input() => fl_client::Error::Config(format!("{error:#}")).into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_quotes_a_long_cell_keeps_its_beginning_and_its_end() {
        let cell = "é".repeat(1 << 20);
        let error = Error::malformed(
            Path::new("a.csv"),
            format!("line 2: {cell} is no number; set `missing`"),
        );
        let text = error.to_string();
        assert!(
            text.starts_with("a.csv: line 2: éé") && text.ends_with("éé is no number; set `missing`"),
            "{text}"
        );
        assert!(text.len() < 1100 && text.contains("é .. é"), "{}", text.len());
        assert_eq!(Error::malformed(Path::new("a"), "short").to_string(), "a: short");
    }
}
