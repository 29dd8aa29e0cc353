//! What many clients are sent at about the same time: read once, or compressed once.

use std::ops::Range;
use std::sync::Mutex;

use bytes::Bytes;
use fl_compress::Digest;
use fl_proto::{Joined, JoinedRun, ProtocolError};

use crate::lock::lock;
use crate::storage::blobs::{BlobError, Blobs};

/// Longest frame that is kept in memory; longer ones are read in pieces for each client.
pub(super) const MAX_SHARED: u64 = 16 << 20;

/// The frame that was read last to be sent: the clients of a round need the same one.
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
        let mut last = lock(&self.0);
        if let Some((_, bytes)) = last.as_ref().filter(|(of, _)| of == frame) {
            return Ok(bytes.clone());
        }
        // The one before is freed first, if nobody sends it any more.
        *last = None;
        let bytes = Bytes::from(blobs.get(frame)?);
        *last = Some((*frame, bytes.clone()));
        Ok(bytes)
    }
}

/// What the clients of a run are told, compressed once.
#[derive(Debug, Default)]
pub(crate) struct SharedReply(Mutex<Option<(u64, JoinedRun)>>);

impl SharedReply {
    /// Only the number of rounds changes while a server runs.
    pub(super) fn of(&self, joined: &Joined) -> Result<JoinedRun, ProtocolError> {
        let mut kept = lock(&self.0);
        match &*kept {
            Some((rounds, run)) if *rounds == joined.rounds => Ok(run.clone()),
            _ => Ok(kept.insert((joined.rounds, JoinedRun::of(joined)?)).1.clone()),
        }
    }
}
