//! Why a run cannot be served, or no longer.

use std::io;

use crate::model::{ModelError, PersistenceError};
use crate::state_machine::ImpossibleRecord;
use crate::storage::blobs::BlobError;
use crate::storage::disk::DiskError;
use crate::storage::store::StoreError;
use crate::storage::weights::WeightsError;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the records of this run contradict each other: {0}")]
    Records(#[from] ImpossibleRecord),
    #[error(transparent)]
    Model(#[from] PersistenceError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("the first weights cannot be used: {0}")]
    FirstModel(ModelError),
    #[error("cannot serve: {0}")]
    Tls(#[from] fl_proto::TlsError),
    #[error("cannot serve: the listener failed: {0}")]
    Listener(io::Error),
    #[error("cannot serve: {}", causes(.0))]
    Calls(#[from] tonic::transport::Error),
    #[error("the system gives no random bytes: {0}")]
    Random(#[from] getrandom::Error),
    /// A task panicked: a bug in this program.
    #[error("internal failure: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}

impl ServeError {
    /// Whether what is stored is not what was stored.
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Store(error) => error.is_corruption(),
            Self::Blob(error) => error.is_corruption(),
            Self::Model(error) => error.is_corruption(),
            Self::Records(_) => true,
            _ => false,
        }
    }

    /// Whether the plan, or the first weights that it names, cannot be served as they are.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Weights(_) | Self::FirstModel(_) | Self::Model(PersistenceError::OtherPlan { .. })
        )
    }
}

impl From<ModelError> for ServeError {
    fn from(error: ModelError) -> Self {
        Self::Model(error.into())
    }
}

/// An error and its causes in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
