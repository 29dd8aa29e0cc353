//! The model updates that lead from one version to another, and the model that they sum to.

use std::fmt::Display;

use fl_compress::{Digest, Frame, Layout};
use fl_proto::FramePart;

use super::error::ModelError;
use crate::state_machine::{Closed, State};

/// The model updates that lead from version `held` to version `want`, in order, with their sizes. Empty if `held` is `want`;
/// `None` if `held` is newer, a version is unknown, or a rollback lies between the two: no model update leads to its model.
pub fn version_path(state: &State, held: u64, want: u64) -> Option<Vec<FramePart>> {
    let (from, to) = (usize::try_from(held).ok()?, usize::try_from(want).ok()?);
    let rounds = state.rounds().range(from, to)?;
    let part = |made: &Closed| {
        made.base.is_none().then_some(FramePart {
            version: made.round,
            len: made.frame_len,
            digest: made.frame,
        })
    };
    rounds.map(part).collect()
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
    let (mut model, mut bytes) = (vec![0.0; layout.len()], Vec::new());
    for digest in [initial].into_iter().chain(updates) {
        let of = |why: String| ModelError::Start(format!("frame {digest}: {why}"));
        read(digest, &mut bytes).map_err(|e| of(e.to_string()))?;
        let frame = Frame::parse(&bytes, layout).map_err(|e| of(e.to_string()))?;
        frame.apply(&mut model).map_err(|e| of(e.to_string()))?;
    }
    Ok(model)
}
