//! Evaluation of the held model on the client's held-out examples.

use std::sync::Arc;

use fl_compress::weights::handed_out;

use super::state::ClientState;
use crate::error::Error;
use crate::learner::{EvaluatePlan, Evaluation, Progress};

impl ClientState {
    /// Evaluates the held model and returns its version too; `None` if the learner has no held-out examples.
    ///
    /// # Errors
    /// `Learner` if the evaluation fails or its result is impossible; `NotNow` if no model is held.
    pub(crate) fn evaluate(&mut self, progress: Arc<Progress>) -> Result<Option<(u64, Evaluation)>, Error> {
        let nothing = || Error::NotNow("no model is held".to_owned());
        self.run()?;
        let run = self.run.as_mut().ok_or_else(nothing)?;
        let model = run.model.as_ref().ok_or_else(nothing)?;
        let learner = self.tasks.learner(&run.joined.task)?;
        let failed = |e: anyhow::Error| Error::Learner(format!("evaluation: {e:#}"));
        learner.load(&handed_out(&run.layout, &model.values)).map_err(failed)?;
        let plan = EvaluatePlan {
            version: model.version,
            progress,
        };
        let Some(evaluation) = learner.evaluate_with(&plan).map_err(failed)? else {
            return Ok(None);
        };
        let Evaluation {
            examples,
            loss,
            correct,
            ..
        } = evaluation;
        if examples == 0 || correct.is_some_and(|correct| correct > examples) || !loss.is_finite() {
            let correct = correct.map_or(String::new(), |correct| format!("{correct} correct, "));
            return Err(Error::Learner(format!(
                "its evaluation is impossible: {examples} examples, {correct}loss {loss}"
            )));
        }
        Ok(Some((model.version, evaluation)))
    }
}
