//! Replays closed rounds: restores the model after a restart, and audits a run.

use std::fmt::Display;
use std::sync::Arc;

use fl_compress::{Digest, Layout};

use super::error::ModelError;
use super::global_model::GlobalModel;
use crate::config::plan::RunPlan;
use crate::state_machine::PendingWork;
use crate::storage::record::RecordedStep;

impl GlobalModel {
    /// The model of `version`, as the sum of its frames, with empty residual and initial optimizer state. `made_by`:
    /// digest of the frame that made the version; `None` for version 0 and a rollback. Shapes: `model: [layout.len()]`.
    ///
    /// # Errors
    /// As [`GlobalModel::initial`].
    pub fn from_frames(
        layout: Arc<Layout>,
        model: Vec<f32>,
        version: u64,
        made_by: Option<Digest>,
        plan: &RunPlan,
    ) -> Result<Self, ModelError> {
        let mut global = Self::initial(layout, model, plan)?;
        global.predictor = made_by.filter(|_| global.predicts);
        global.version = version;
        Ok(global)
    }

    /// Closes a round again and compares with what was recorded.
    ///
    /// # Errors
    /// As [`GlobalModel::close`], and `Differs`.
    pub fn replay<E: Display>(
        &mut self,
        work: &PendingWork,
        recorded: &RecordedStep,
        read: impl FnMut(&Digest, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), ModelError> {
        let round = work.round;
        let step = self.close(round, &work.updates, read)?.step;
        for (what, found, recorded) in [
            ("frame", step.frame, recorded.frame),
            ("model", step.model, recorded.model),
        ] {
            if found != recorded {
                return Err(ModelError::Differs {
                    round,
                    what,
                    found,
                    recorded,
                });
            }
        }
        Ok(())
    }
}
