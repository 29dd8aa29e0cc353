//! Where the model's snapshots and checkpoints are stored, and when.

use fl_compress::Digest;
use fl_proto::FramePart;

use crate::model::global_model::GlobalModel;
use crate::model::persistence_error::PersistenceError;
use crate::storage::blobs::Blobs;
use crate::storage::store::{Checkpoint, RunStore};

#[derive(Debug)]
pub(crate) struct ModelStore {
    pub(crate) blobs: Blobs,
    pub(crate) run: RunStore,
    /// The snapshot of version 0: the beginning of every chain, never removed.
    pub(crate) initial: Digest,
    pub(crate) checkpoint_every: u64,
    pub(crate) keep_updates: bool,
}

pub(crate) fn put_snapshot(global: &GlobalModel, blobs: &Blobs) -> Result<FramePart, PersistenceError> {
    let frame = global.snapshot()?;
    let digest = blobs.put(&frame)?;
    Ok(FramePart {
        version: global.version(),
        len: frame.len() as u64,
        digest,
    })
}

/// Key of the first round from which all updates are stored; updates of earlier rounds may have been removed.
pub(crate) const UPDATES_FROM: &str = "updates-from";

/// Makes a checkpoint durable, then records it and the older one, which is kept as well. `also`: named values to set in
/// the same commit.
pub(crate) fn put_checkpoint(
    global: &GlobalModel,
    blobs: &Blobs,
    run: &RunStore,
    older: Option<Checkpoint>,
    also: &[(&str, &[u8])],
) -> Result<Vec<Checkpoint>, PersistenceError> {
    let newest = Checkpoint {
        version: global.version(),
        blob: blobs.put(&global.save())?,
    };
    let kept: Vec<_> = [newest].into_iter().chain(older).collect();
    run.set_checkpoints(&kept, also)?;
    Ok(kept)
}
