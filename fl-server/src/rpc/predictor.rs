//! The predictor of a round's updates: the model update that made the version from which the clients train.

use fl_compress::Digest;

use crate::config::plan::RunPlan;
use crate::state_machine::State;

/// Digest of the predictor's frame; `None` if no frame of `round` may name one: the run's memory is not CAFe, or the
/// round trains from version 0.
pub(crate) fn of_round(state: &State, plan: &RunPlan, round: u64) -> Option<Digest> {
    let made_by = usize::try_from(round).ok()?.checked_sub(2)?;
    // A rollback has no model update.
    let step = state
        .versions()
        .made()
        .get(made_by)
        .filter(|made| made.base.is_none())?
        .frame;
    plan.uplink.memory.predicts().then_some(step)
}
