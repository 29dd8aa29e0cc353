//! The way from one version to another: the steps between them.

use fl_proto::FramePart;

use crate::engine::State;

/// The steps that lead from version `held` to version `want`, in order, with their sizes; `None` if there is no such
/// way. Empty if nothing is missing.
pub fn chain(state: &State, held: u64, want: u64) -> Option<Vec<FramePart>> {
    let (from, to) = (usize::try_from(held).ok()?, usize::try_from(want).ok()?);
    let rounds = state.rounds().range(from, to)?;
    Some(
        rounds
            .map(|r| FramePart {
                version: r.round,
                len: r.frame_len,
                digest: r.frame,
            })
            .collect(),
    )
}
