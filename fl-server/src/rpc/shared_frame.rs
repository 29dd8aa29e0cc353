//! The frame that was read last to be sent: the clients of a round need the same one at about the same time, so it is read once.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fl_compress::Digest;

use crate::storage::blobs::{BlobError, Blobs};

/// Longest frame that is kept in memory; longer ones are read in pieces for each client.
pub(super) const MAX_SHARED: u64 = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct SharedFrame(Mutex<Option<(Digest, Bytes)>>);

impl SharedFrame {
    /// The frame with this digest, if it was read last. Does not block.
    pub(super) fn known(&self, frame: &Digest) -> Option<Bytes> {
        let last = self.0.try_lock().ok()?;
        let (_, bytes) = last.as_ref().filter(|(of, _)| of == frame)?;
        Some(bytes.clone())
    }

    /// A copy of a part of the frame with this digest, if it was read last and is so long: a client that reads slowly keeps no
    /// frame in memory. Does not block.
    pub(super) fn piece(&self, frame: &Digest, part: &Range<u64>) -> Option<Bytes> {
        let part = usize::try_from(part.start).ok()?..usize::try_from(part.end).ok()?;
        self.known(frame)?.get(part).map(Bytes::copy_from_slice)
    }

    /// The frame with this digest, of at most [`MAX_SHARED`] bytes. Blocks.
    pub(super) fn get(&self, blobs: &Blobs, frame: &Digest) -> Result<Bytes, BlobError> {
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
