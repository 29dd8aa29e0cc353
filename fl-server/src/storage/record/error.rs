//! Why stored bytes cannot be read.

/// Stored bytes that are not a value of a known version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// They are truncated or corrupt; the error names the field and the byte.
    #[error(transparent)]
    Bytes(#[from] fl_compress::Error),
    /// A program of another version wrote them.
    #[error("version {theirs}; this program reads version {ours}: use the program that wrote it")]
    Version {
        theirs: u8,
        /// The version that this program reads.
        ours: u8,
    },
}

impl RecordError {
    /// # Errors
    /// `Version`.
    pub(crate) fn check(theirs: u8, ours: u8) -> Result<(), Self> {
        (theirs == ours).then_some(()).ok_or(Self::Version { theirs, ours })
    }
}
