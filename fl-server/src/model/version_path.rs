//! The model updates that lead from one version to another, and the model that they sum to.

use std::fmt::Display;

use fl_compress::{Digest, Frame, Layout};
use fl_proto::FramePart;

use super::error::ModelError;
use crate::state_machine::State;
use crate::storage::blobs::Blobs;

/// The model updates that lead from version `held` to version `want`, in order, with their sizes. Empty if `held` is `want`;
/// `None` if `held` is newer, a version is unknown, or a rollback lies between the two: no model update leads to its model.
pub fn version_path(state: &State, held: u64, want: u64) -> Option<Vec<FramePart>> {
    let from = usize::try_from(held).ok()?;
    let to = usize::try_from(want).ok()?;
    let versions = state.versions().made().range(from, to)?;
    versions
        .map(|made| {
            made.base.is_none().then_some(FramePart {
                version: made.round,
                len: made.frame_len,
                digest: made.frame,
            })
        })
        .collect()
}

/// As [`sum_frames`], of frames that are blobs. `initial`: digest of the snapshot of version 0.
pub(crate) fn stored_model(
    layout: &Layout,
    blobs: &Blobs,
    initial: &str,
    updates: &[Digest],
) -> Result<Vec<f32>, String> {
    let initial: Digest = initial.parse().map_err(|e| format!("facts: {e}"))?;
    sum_frames(layout, &initial, updates, |digest, bytes| blobs.read(digest, bytes)).map_err(|e| e.to_string())
}

/// The model that frames sum to: the snapshot of version 0, then model updates. `read` replaces a buffer by the bytes of a
/// frame. Shapes: returns `[layout.len()]`.
///
/// # Errors
/// `Start` if a frame cannot be read or decoded.
pub fn sum_frames<E: Display>(
    layout: &Layout,
    initial: &Digest,
    updates: &[Digest],
    mut read: impl FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>,
) -> Result<Vec<f32>, ModelError> {
    let mut model = vec![0.0; layout.len()];
    let mut bytes = Vec::new();
    for digest in [initial].into_iter().chain(updates) {
        let of = |why: String| ModelError::Start(format!("frame {digest}: {why}"));
        read(digest, &mut bytes).map_err(|e| of(e.to_string()))?;
        let frame = Frame::parse(&bytes, layout).map_err(|e| of(e.to_string()))?;
        frame.apply(&mut model).map_err(|e| of(e.to_string()))?;
    }
    Ok(model)
}
