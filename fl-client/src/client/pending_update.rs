//! An encoded update that the server has not acknowledged yet.

use std::sync::Arc;

use bytes::Bytes;
use fl_compress::Pending;
use fl_proto::{RunName, SectionFidelity, UpdateHeader, UpdateId};

use crate::state::UpdateMetadata;

/// A frame and its header, as they are uploaded.
#[derive(Debug, Clone)]
pub(crate) struct PendingUpdate {
    pub(crate) header: UpdateHeader,
    pub(crate) frame: Bytes,
}

/// The frame of a pending update, which uploads share with it.
struct FrameOf(Arc<Pending>);

impl AsRef<[u8]> for FrameOf {
    fn as_ref(&self) -> &[u8] {
        &self.0.frame
    }
}

impl PendingUpdate {
    pub(super) fn new(run: RunName, pending: &Arc<Pending>, metadata: &UpdateMetadata) -> Self {
        let id = UpdateId {
            run,
            round: metadata.round,
            attempt: metadata.attempt,
            digest: pending.digest,
        };
        let header = UpdateHeader {
            id,
            len: pending.frame.len() as u64,
            offset: 0,
            examples: metadata.examples,
            loss: metadata.loss,
            train_ms: metadata.train_ms,
            encode_ms: metadata.encode_ms,
            stages: pending.stages,
            fidelity: SectionFidelity::of(&pending.fidelity),
            metrics: Arc::clone(&metadata.metrics),
            evaluation: None,
        };
        Self {
            header,
            frame: Bytes::from_owner(FrameOf(Arc::clone(pending))),
        }
    }
}
