//! Why a run's model cannot be stored, or computed again from what is stored.

use fl_compress::Digest;
use fl_proto::RunName;

use crate::model::error::ModelError;
use crate::storage::blobs::BlobError;
use crate::storage::disk::DiskError;
use crate::storage::store::StoreError;

/// A run's model cannot be stored, or computed again from what is stored.
#[derive(Debug, thiserror::Error)]
pub enum PersistenceError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A blob cannot be read or written.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A round cannot be computed as recorded.
    #[error("the model cannot be computed as recorded: {0}")]
    Model(#[from] ModelError),
    /// The folder has a run of this name with another plan.
    #[error(
        "run `{run}` was begun with another plan ({changed}); give the changed run another name, or serve it as it was"
    )]
    OtherPlan {
        /// The run.
        run: RunName,
        /// What was changed.
        changed: String,
    },
    /// A stored value or file cannot be used.
    #[error("{what}: {why}")]
    Stored {
        /// The entry of the store, or the file.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// Neither checkpoints nor updates nor model updates make the newest model.
    #[error("the model cannot be computed as recorded: {}", .0.join("; "))]
    Damaged(Vec<String>),
    /// The newest model has another digest than its record says.
    #[error("the model cannot be computed as recorded: version {version} has digest {found}, recorded is {recorded}")]
    OtherModel {
        /// The version.
        version: u64,
        /// Digest found.
        found: Digest,
        /// Digest recorded.
        recorded: Digest,
    },
}

impl PersistenceError {
    #[expect(clippy::needless_pass_by_value, reason = "texts and errors are passed as they come")]
    pub(crate) fn stored(what: impl ToString, why: impl ToString) -> Self {
        Self::Stored {
            what: what.to_string(),
            why: why.to_string(),
        }
    }

    /// Whether what is stored is not what was stored.
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Store(error) => error.is_corruption(),
            Self::Blob(error) => error.is_corruption(),
            Self::Disk(_) | Self::OtherPlan { .. } => false,
            Self::Model(_) | Self::Stored { .. } | Self::Damaged(_) | Self::OtherModel { .. } => true,
        }
    }
}
