//! Why stored bytes cannot be read.

/// Stored bytes that are not a value of a known version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// They are truncated or corrupt; the error names the field and the byte.
    #[error(transparent)]
    Bytes(#[from] fl_compress::Error),
    /// A newer program wrote them.
    #[error("version {theirs}; this program reads up to {ours}: update it")]
    Newer {
        theirs: u8,
        /// The newest version that this program reads.
        ours: u8,
    },
}
