//! The frame that was read last to be sent: the clients of a round need the same one at about the same time, so it is read once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fl_compress::Digest;
use tonic::Status;

use crate::rpc::context::{Service, internal, unable};
use crate::storage::blobs::{BlobError, Blobs};

/// Longest frame that is kept in memory; longer ones are read in pieces for each client.
pub(super) const MAX_SHARED: u64 = 16 << 20;

/// The frame that was read last.
#[derive(Debug, Default)]
pub(crate) struct SharedFrame(Mutex<Option<(Digest, Bytes)>>);

impl SharedFrame {
    /// The frame with this digest, of at most [`MAX_SHARED`] bytes.
    ///
    /// # Errors
    /// The status of the call: the blob cannot be read.
    pub(super) async fn of(service: &Arc<Service>, frame: &Digest) -> Result<Bytes, Status> {
        if let Some(bytes) = service.shared_frame.known(frame) {
            return Ok(bytes);
        }
        let (service, frame) = (Arc::clone(service), *frame);
        let read = move || service.shared_frame.get(&service.blobs, &frame);
        let read = tokio::task::spawn_blocking(read).await.map_err(internal)?;
        read.map_err(|error| unable(&error))
    }

    /// The frame with this digest, if it was read last. Does not block.
    fn known(&self, frame: &Digest) -> Option<Bytes> {
        let last = self.0.try_lock().ok()?;
        let (_, bytes) = last.as_ref().filter(|(of, _)| of == frame)?;
        Some(bytes.clone())
    }

    /// The frame with this digest. Blocks.
    ///
    /// # Errors
    /// Those of the blobs.
    fn get(&self, blobs: &Blobs, frame: &Digest) -> Result<Bytes, BlobError> {
        let mut last = self.lock();
        if let Some((_, bytes)) = last.as_ref().filter(|(of, _)| of == frame) {
            return Ok(bytes.clone());
        }
        // The one before is freed first, if nobody sends it any more.
        *last = None;
        let bytes = Bytes::from(blobs.get(frame)?);
        *last = Some((*frame, bytes.clone()));
        Ok(bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Digest, Bytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
