//! The frame on its way, and what becomes of it.

use bytes::Bytes;
use fl_compress::{Digest, Verdict};
use fl_proto::{SectionFidelity, UpdateHeader, UpdateId};

use super::{Run, Work};
use crate::Error;

/// A frame and what is said with it.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) header: UpdateHeader,
    pub(crate) frame: Bytes,
}

impl Work {
    /// The frame whose fate is open.
    pub(crate) fn outgoing(&self) -> Option<Outgoing> {
        self.run.as_ref().and_then(Run::outgoing)
    }

    /// Remembers what became of the pending frame: on disk first, then in the encoder's memory.
    ///
    /// # Errors
    /// `State` if it cannot be written; the frame stays pending then.
    pub(crate) fn settle(&mut self, digest: Digest, verdict: Verdict) -> Result<(), Error> {
        let run = self.run()?;
        let Some((pending, _)) = run.open.as_ref().filter(|(pending, _)| pending.digest == digest) else {
            return Ok(());
        };
        run.state.save_verdict(digest, verdict)?;
        run.encoder
            .settle(pending, verdict)
            .map_err(|e| Error::Crashed(format!("pending frame: {e}")))?;
        run.open = None;
        Ok(())
    }
}

impl Run {
    pub(super) fn outgoing(&self) -> Option<Outgoing> {
        let (pending, claims) = self.open.as_ref()?;
        let id = UpdateId {
            run: self.joined.run.clone(),
            round: claims.round,
            attempt: claims.attempt,
            digest: pending.digest,
        };
        let header = UpdateHeader {
            id,
            len: pending.frame.len() as u64,
            offset: 0,
            examples: claims.examples,
            loss: claims.loss,
            train_ms: claims.train_ms,
            encode_ms: claims.encode_ms,
            stages: pending.stages,
            fidelity: SectionFidelity::of(&pending.fidelity),
        };
        Some(Outgoing {
            header,
            frame: Bytes::copy_from_slice(&pending.frame),
        })
    }
}
