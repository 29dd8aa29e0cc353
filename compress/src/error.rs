//! The error type of this crate. Each variant calls for a different reaction of the caller.

/// An error of encoding or decoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are invalid: `what` names the field, `offset` the position at which the decoder noticed.
    #[error("corrupt at byte {offset}: {what}")]
    Corrupt {
        /// The invalid field.
        what: String,
        /// Offset in the input.
        offset: usize,
    },
    /// The bytes end before `what` is complete.
    #[error("truncated at byte {offset}: {what} is missing")]
    Truncated {
        /// The field that is cut.
        what: String,
        /// Offset at which more bytes were needed.
        offset: usize,
    },
    /// The bytes are well-formed, but belong to another format version, layout or round.
    #[error("does not match: {0}")]
    Mismatch(String),
    /// A value that must be finite is NaN or infinite.
    #[error("not finite: {0}")]
    NotFinite(String),
    /// Invalid argument of the caller: a wrong length, an unknown name, a number out of range.
    #[error("{0}")]
    Usage(String),
}
