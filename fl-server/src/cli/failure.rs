//! Why a command failed, and its exit code.

use std::error::Error;

use fl_cli::exit::{FAILURE, USAGE};

use crate::error::ServeError;
use crate::model::PersistenceError;
use crate::reporting::inspect::InspectError;
use crate::storage::blobs::BlobError;
use crate::storage::store::StoreError;

/// Exit code of corrupt stored data.
const CORRUPT: u8 = 4;
/// Exit code of `verify` if it found nothing wrong but could not check everything.
const UNCHECKED: u8 = 5;

/// Why a command failed. The exit code follows from the kind, and for other errors from their types.
#[derive(Debug)]
pub(super) enum Failure {
    /// The arguments or a configuration file are wrong.
    Usage(anyhow::Error),
    Corrupt(anyhow::Error),
    /// Nothing is wrong in what was checked, and not everything could be checked.
    Unchecked(anyhow::Error),
    Other(anyhow::Error),
}

pub(super) type Outcome = Result<(), Failure>;

impl Failure {
    pub(super) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    pub(super) fn corrupt(error: impl Into<anyhow::Error>) -> Self {
        Self::Corrupt(error.into())
    }

    pub(super) fn error(&self) -> &anyhow::Error {
        let (Self::Usage(error) | Self::Corrupt(error) | Self::Unchecked(error) | Self::Other(error)) = self;
        error
    }

    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Corrupt(_) => CORRUPT,
            Self::Unchecked(_) => UNCHECKED,
            Self::Other(error) => error.chain().find_map(code_of).unwrap_or(FAILURE),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// The exit code of an error by its type; `None` for 1.
fn code_of(error: &(dyn Error + 'static)) -> Option<u8> {
    if let Some(error) = error.downcast_ref::<ServeError>() {
        return match error {
            error if error.is_usage() => Some(USAGE),
            error if error.is_corruption() => Some(CORRUPT),
            _ => None,
        };
    }
    let is_corrupt = error.downcast_ref().is_some_and(StoreError::is_corruption)
        || error.downcast_ref().is_some_and(BlobError::is_corruption)
        || error.downcast_ref().is_some_and(PersistenceError::is_corruption)
        || matches!(error.downcast_ref(), Some(InspectError::Corrupt(_)));
    is_corrupt.then_some(CORRUPT)
}
