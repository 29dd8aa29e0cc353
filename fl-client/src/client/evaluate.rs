//! Evaluation of the held model, and of the average of its last versions, on the client's held-out examples.

use std::sync::Arc;

use fl_compress::weights::handed_out;
use fl_proto::{MAX_EXAMPLES, Metric, Metrics};

use super::run::Run;
use super::state::ClientState;
use crate::error::Error;
use crate::learner::{EvaluatePlan, Evaluation, Learner, Progress};
use crate::summary;

impl ClientState {
    /// Evaluates the held model and returns its version too; `None` if the learner has no held-out examples. Where the run
    /// averages versions and all model updates for it are kept, the metrics named `average_*` are those of the average.
    pub(crate) fn evaluate(&mut self, progress: &Arc<Progress>) -> Result<Option<(u64, Evaluation)>, Error> {
        let nothing = || Error::NotNow("no model is held".to_owned());
        self.run()?;
        let run = self.run.as_mut().ok_or_else(nothing)?;
        let model = run.model.as_ref().ok_or_else(nothing)?;
        let version = model.version;
        let learner = self.tasks.learner(&run.joined.task)?;
        let plan = EvaluatePlan {
            version,
            progress: Arc::clone(progress),
        };
        let mut of = |values: &[f32]| evaluated(learner, &handed_out(&run.layout, values), &plan);
        let Some(mut evaluation) = of(&model.values)? else {
            return Ok(None);
        };
        if let Some(averaged) = averaged(run, version, &model.values)?
            && let Some(of_average) = of(&averaged)?
        {
            add(&mut evaluation.metrics, &of_average);
        }
        Ok(Some((version, evaluation)))
    }
}

/// The average of the last versions; `None` if the run has none, if it is the newest version alone, or if a model update for it
/// is missing.
fn averaged(run: &Run, version: u64, newest: &[f32]) -> Result<Option<Vec<f32>>, Error> {
    let Some(average) = &run.joined.average else {
        return Ok(None);
    };
    let count = average.updates(version);
    let Some(updates) = run
        .state
        .load_model_updates(&run.layout, version, count)
        .filter(|_| count > 0)
    else {
        return Ok(None);
    };
    let mut values = newest.to_vec();
    let applied = average.apply(&run.layout, &updates, &mut values);
    applied.map_err(|e| Error::Crashed(format!("the average of the last versions: {e}")))?;
    Ok(Some(values))
}

/// Evaluates one model. `None` if the learner has no held-out examples. Shapes: `values: [layout.len()]`.
fn evaluated(learner: &mut dyn Learner, values: &[f32], plan: &EvaluatePlan) -> Result<Option<Evaluation>, Error> {
    let failed = |e: anyhow::Error| Error::Learner(format!("evaluation: {}", summary::logged(&format!("{e:#}"))));
    learner.load(values).map_err(failed)?;
    let evaluation = learner.evaluate_with(plan).map_err(failed)?;
    let Some(mut evaluation) = evaluation.filter(|evaluation| evaluation.examples > 0) else {
        return Ok(None);
    };
    let Evaluation { examples, loss, .. } = evaluation;
    if !loss.is_finite() || examples > MAX_EXAMPLES {
        return Err(Error::Learner(format!(
            "its evaluation is impossible: {examples} examples, loss {loss}"
        )));
    }
    let most = examples as f64;
    // A sum of weights may pass the number of examples by its rounding.
    let possible = -1e-6 * most..=most * (1.0 + 1e-6);
    let correct = evaluation.correct.take();
    evaluation.correct = correct
        .filter(|correct| possible.contains(correct))
        .map(|correct| correct.clamp(0.0, most));
    if let (Some(correct), None) = (correct, evaluation.correct) {
        tracing::warn!(
            correct,
            examples,
            "the accuracy is left out: `correct` must be 0 to the number of examples; a share or a percentage is neither"
        );
    }
    Ok(Some(evaluation))
}

fn add(metrics: &mut Metrics, of_average: &Evaluation) {
    let weight = of_average.examples as f64;
    let own = [("loss", Some(of_average.loss)), ("accuracy", of_average.accuracy())];
    let own = own
        .into_iter()
        .filter_map(|(name, value)| Some((name, Metric { value: value?, weight })));
    for (name, metric) in own.chain(of_average.metrics.iter()) {
        if let Err(error) = metrics.add(format!("{AVERAGE}{name}"), metric) {
            tracing::warn!(%error, "a figure of the averaged model is not reported");
        }
    }
}

/// What the names of an average's figures begin with.
const AVERAGE: &str = "average_";
