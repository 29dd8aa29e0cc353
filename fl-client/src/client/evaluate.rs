//! Evaluation of the held model on the client's held-out examples.

use fl_proto::EvaluationReport;

use super::state::ClientState;
use crate::error::Error;
use crate::learner::Evaluation;

impl ClientState {
    /// Evaluates the held model; `None` if the learner has no held-out examples.
    ///
    /// # Errors
    /// `Learner` if the evaluation fails or its result is impossible; `NotNow` if no model is held.
    pub(crate) fn evaluate(&mut self) -> Result<Option<EvaluationReport>, Error> {
        let nothing = || Error::NotNow("no model is held".to_owned());
        self.run()?;
        let run = self.run.as_mut().ok_or_else(nothing)?;
        let model = run.model.as_ref().ok_or_else(nothing)?;
        let learner = self.tasks.learner(&run.joined.task)?;
        let failed = |e: anyhow::Error| Error::Learner(format!("evaluation: {e:#}"));
        learner.load(&model.values).map_err(failed)?;
        let Some(Evaluation {
            examples,
            loss,
            correct,
        }) = learner.evaluate().map_err(failed)?
        else {
            return Ok(None);
        };
        if examples == 0 || correct > examples || !loss.is_finite() {
            return Err(Error::Learner(format!(
                "its evaluation is impossible: {correct} of {examples} correct, loss {loss}"
            )));
        }
        Ok(Some(EvaluationReport {
            run: run.joined.run.clone(),
            version: model.version,
            examples,
            loss,
            correct,
        }))
    }
}
