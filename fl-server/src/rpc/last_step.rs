//! The model update that travels with the state of a round, read once for all clients.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fl_compress::Digest;

use crate::storage::blobs::{BlobError, Blobs};

/// The model update that was read last.
#[derive(Debug, Default)]
pub(crate) struct LastStep(Mutex<Option<(Digest, Bytes)>>);

impl LastStep {
    /// The model update with this digest, if it was read last. Blocks only while another is read.
    pub(super) fn known(&self, step: &Digest) -> Option<Bytes> {
        let (_, bytes) = self.lock().clone().filter(|(of, _)| of == step)?;
        Some(bytes)
    }

    /// The model update with this digest. Blocks.
    ///
    /// # Errors
    /// Those of the blobs.
    pub(super) fn get(&self, blobs: &Blobs, step: &Digest) -> Result<Bytes, BlobError> {
        let mut last = self.lock();
        if let Some((_, bytes)) = last.as_ref().filter(|(of, _)| of == step) {
            return Ok(bytes.clone());
        }
        let bytes = Bytes::from(blobs.get(step)?);
        *last = Some((*step, bytes.clone()));
        Ok(bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Digest, Bytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
