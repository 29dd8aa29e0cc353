//! The predictor of a round's updates: the model update that made the version from which the clients train.

use std::sync::{Mutex, PoisonError};

use fl_compress::{Digest, Frame, Layout};

use crate::config::plan::RunPlan;
use crate::state_machine::State;
use crate::storage::blobs::{BlobError, Blobs};

/// Digest of the predictor's frame; `None` if no frame of `round` may name one: the run's memory is not CAFe, or the
/// round trains from version 0.
pub(crate) fn of_round(state: &State, plan: &RunPlan, round: u64) -> Option<Digest> {
    let made_by = usize::try_from(round).ok()?.checked_sub(2)?;
    // A rollback has no model update.
    let step = state.rounds().get(made_by).filter(|made| made.base.is_none())?.frame;
    plan.uplink.memory.predicts().then_some(step)
}

/// The largest magnitude in a model update that was made before the server started, decoded once for all frames of a round.
#[derive(Debug, Default)]
pub(crate) struct LargestOfStep(Mutex<Option<(Digest, f32)>>);

impl LargestOfStep {
    /// Largest magnitude in the model update with this digest, or why its frame cannot be decoded. Blocks.
    ///
    /// # Errors
    /// Those of the blobs.
    pub(super) fn get(&self, blobs: &Blobs, layout: &Layout, step: &Digest) -> Result<Result<f32, String>, BlobError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, largest)) = known.filter(|(of, _)| of == step) {
            return Ok(Ok(largest));
        }
        let bytes = blobs.get(step)?;
        let largest = Frame::parse(&bytes, layout).and_then(|frame| frame.verify());
        Ok(match largest {
            Ok(largest) => {
                *known = Some((*step, largest));
                Ok(largest)
            }
            Err(why) => Err(format!("its predictor cannot be decoded: {why}")),
        })
    }
}
