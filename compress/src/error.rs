//! One error type, its variants cut by what the caller can do about it.

/// What went wrong in compressing or decompressing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not what they should be; `what` names the field and `offset` the byte at which it was noticed.
    #[error("corrupt at byte {offset}: {what}")]
    Corrupt {
        /// The field or rule that was broken.
        what: String,
        /// Offset into the bytes given.
        offset: usize,
    },
    /// The bytes end before `what` is complete.
    #[error("truncated at byte {offset}: {what} is missing")]
    Truncated {
        /// The field that was being read.
        what: String,
        /// Offset at which more bytes were needed.
        offset: usize,
    },
    /// The bytes are well formed but for another format version, layout or round.
    #[error("does not match: {0}")]
    Mismatch(String),
    /// A value that must be finite is NaN or infinite.
    #[error("not finite: {0}")]
    NotFinite(String),
    /// The caller asked for something that cannot be: a wrong length, an unknown name, a number out of range.
    #[error("{0}")]
    Usage(String),
}
