//! Why a blob cannot be read or written.

use std::path::PathBuf;

use fl_compress::Digest;

use crate::storage::disk::DiskError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("blob {0} is missing")]
    Missing(Digest),
    #[error("{} is damaged: its digest is {found}", path.display())]
    Damaged { path: PathBuf, found: Digest },
    #[error("the upload has {len} bytes, more than the {max} declared")]
    TooLarge { len: u64, max: u64 },
    #[error("the upload has {have} of {len} bytes")]
    Short { have: u64, len: u64 },
    #[error("another call continues the upload")]
    Superseded,
}

impl BlobError {
    /// Whether what is stored is not what was stored.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::Damaged { .. })
    }
}
