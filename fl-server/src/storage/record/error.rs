//! Why stored bytes cannot be read.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// They are truncated or corrupt; the error names the field and the byte.
    #[error(transparent)]
    Bytes(#[from] fl_compress::Error),
    #[error("version {theirs}; this program reads version {ours}: use the program that wrote it")]
    Version { theirs: u8, ours: u8 },
}

impl RecordError {
    pub(crate) fn check(theirs: u8, ours: u8) -> Result<(), Self> {
        (theirs == ours).then_some(()).ok_or(Self::Version { theirs, ours })
    }
}
