//! The trait that a user implements to bring a model and data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fl_compress::{Digest, Layout, SpaceSpec, TensorSpec};
use fl_proto::{ClientId, EvaluationReport, Extra, Metrics, RunName, Training};

use crate::class_names::ClassNames;
use crate::optimizer_state::OptimizerState;
pub use crate::progress::Progress;

/// The work of one round.
#[derive(Debug, Clone)]
pub struct FitPlan {
    /// Local training settings of the run.
    pub training: Training,
    /// The run's `[train.extra]`, for learners that have settings of their own.
    pub extra: Extra,
    /// The round, from 1.
    pub round: u64,
    /// Number of rounds of the run.
    pub rounds: u64,
    /// Seed of every random choice of this client in this round.
    pub seed: u64,
    /// Time left until the round's deadline, if it has one.
    pub deadline: Option<Duration>,
    /// Whether the run's compression has a rule that chooses by squared gradients: see [`Fit::squared_gradients`].
    pub squared_gradients: bool,
    /// What [`Fit::kept`] was after this client's last accepted training of the run; `None` before the first, and where the
    /// run's `state` is `fresh`.
    pub kept: Option<Arc<OptimizerState>>,
    /// Where the learner reports its progress and reads the request to stop.
    pub progress: Arc<Progress>,
}

impl FitPlan {
    /// A plan without extra settings, deadline, squared gradients and kept moments.
    pub fn new(training: Training, round: u64, rounds: u64, seed: u64) -> Self {
        Self {
            training,
            extra: Extra::default(),
            round,
            rounds,
            seed,
            deadline: None,
            squared_gradients: false,
            kept: None,
            progress: Arc::default(),
        }
    }
}

/// The evaluation of one model version.
#[derive(Debug, Clone, Default)]
pub struct EvaluatePlan {
    /// The version: the number of rounds that made it.
    pub version: u64,
    /// Where the learner reads the request to stop.
    pub progress: Arc<Progress>,
}

/// The result of one round of local training.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Number of examples, which is the weight of the update in the average.
    pub examples: u64,
    /// Mean training loss over the round.
    pub loss: f64,
    /// Further figures of the training.
    pub metrics: Metrics,
    /// Mean over the local steps of the squared gradient of each trained value: `[layout.trained().len()]`, finite and not
    /// negative. Without it, a rule that chooses by squared gradients takes the magnitude alone. It never leaves the client.
    pub squared_gradients: Option<Vec<f32>>,
    /// The optimizer's moments after the training, finite, where the run's `state` is `kept`. They are durable before the update is
    /// sent, and the next training begins with them if the server accepts it. They never leave the client.
    pub kept: Option<OptimizerState>,
    /// Whether weights that equal the loaded ones to the bit are right: steps were taken that changed nothing, or nothing was to be
    /// trained. `None`: the learner cannot tell, and the client takes such weights of 32 bits as a training that did not reach
    /// the model. Then, and if false, the client leaves the round.
    pub unchanged_ok: Option<bool>,
}

impl Fit {
    /// A training without further figures, squared gradients and kept moments.
    pub fn new(examples: u64, loss: f64) -> Self {
        Self {
            examples,
            loss,
            metrics: Metrics::new(),
            squared_gradients: None,
            kept: None,
            unchanged_ok: None,
        }
    }
}

/// The result of an evaluation on held-out examples.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Examples evaluated.
    pub examples: u64,
    /// Mean loss.
    pub loss: f64,
    /// Examples classified correctly, 0 to `examples`: a fraction where examples have weights. `None` if the model does not
    /// classify.
    pub correct: Option<f64>,
    /// Whether `loss` is the mean negative log-likelihood of a token, in nats, so that its exponential is the perplexity of a
    /// language model.
    pub language: bool,
    /// Further figures of the evaluation.
    pub metrics: Metrics,
}

impl Evaluation {
    /// The evaluation of a classifier, without further figures.
    pub fn new(examples: u64, loss: f64, correct: f64) -> Self {
        Self {
            examples,
            loss,
            correct: Some(correct),
            language: false,
            metrics: Metrics::new(),
        }
    }

    pub(crate) fn report(&self, run: &RunName, version: u64) -> EvaluationReport {
        EvaluationReport {
            run: run.clone(),
            version,
            examples: self.examples,
            loss: self.loss,
            correct: self.correct,
            language: self.language,
            metrics: Arc::new(self.metrics.clone()),
        }
    }
}

impl Evaluation {
    /// The share of the examples classified correctly, of a model that classifies.
    pub fn accuracy(&self) -> Option<f64> {
        self.correct.map(|correct| correct / self.examples as f64)
    }

    /// The exponential of the loss, of a language model; `None` beyond the range of a float.
    pub fn perplexity(&self) -> Option<f64> {
        Some(self.loss.exp()).filter(|perplexity| self.language && perplexity.is_finite())
    }
}

/// A run and the tensors of its model.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTensors {
    /// The run.
    pub run: RunName,
    /// Identifies this client's part in the run, among runs of the same name.
    pub instance: Digest,
    /// This client.
    pub client: ClientId,
    /// The run's number of rounds.
    pub rounds: u64,
    /// The run's seed.
    pub seed: u64,
    /// The tensors that travel.
    pub layout: Arc<Layout>,
    /// The tensors that stay: local and frozen ones, sorted by name.
    pub aside: Vec<TensorSpec>,
    /// Digest of the frozen tensors, if there are any.
    pub base: Option<Digest>,
    /// A safetensors file with the frozen tensors, if this client has one; it may have other tensors beside them.
    pub base_file: Option<PathBuf>,
    /// The run's `train.space`: the trained tensors that travel are those of z in `w = w0 + P z`, and the frozen ones are w0. Only
    /// for learners with [`Learner::trains_in_spaces`].
    pub space: Option<SpaceSpec>,
}

/// A model and its data. The client calls a learner from one thread at a time, never from an async task.
pub trait Learner: Send {
    /// Names and shapes of the model's tensors.
    fn layout(&self) -> Arc<Layout>;

    /// What the numbers of the classes or tokens in this client's data mean; `None` if the learner has none or does not know. The
    /// server refuses a client whose classes differ from those of the others.
    fn classes(&self) -> Option<ClassNames> {
        None
    }

    /// Prepares for a run with these tensors.
    ///
    /// # Errors
    /// If they are not the tensors of the model; the error names the first that differs.
    fn join(&mut self, tensors: &RunTensors) -> anyhow::Result<()> {
        fl_compress::weights::expect_same(&self.layout(), &tensors.layout)?;
        let other = tensors.aside.first();
        anyhow::ensure!(
            other.is_none(),
            "tensor `{}` of the run is not in the model",
            other.map_or("", |tensor| tensor.name.as_str())
        );
        Ok(())
    }

    /// Whether the learner trains the values of a run's `train.space` instead of its own weights: it needs their gradients.
    fn trains_in_spaces(&self) -> bool {
        false
    }

    /// First weights of a run with this `seed`, if the learner can make them. A new client whose weights equal the server's to
    /// the bit downloads no model. Returns `[layout.len()]`. A learner that takes long stops when `progress` asks it to.
    fn initial(&mut self, seed: u64, progress: &Arc<Progress>) -> Option<Vec<f32>> {
        let _ = (seed, progress);
        None
    }

    /// Replaces the model's weights. Shapes: `weights: [layout.len()]`.
    ///
    /// # Errors
    /// Any failure of the learner; the client reports it and leaves the round.
    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()>;

    /// Trains from the loaded weights.
    ///
    /// # Errors
    /// As [`Learner::load`], and when `plan.progress` asks the learner to stop.
    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit>;

    /// Copies the current weights out. Shapes: `out: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Learner::load`].
    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()>;

    /// Writes what training added to the weights that were loaded last: `out = weights - loaded`. A learner may override it to
    /// save a copy. Called in place of [`Learner::weights`] after a training, for models without counters. Shapes: both
    /// `[layout.len()]`.
    ///
    /// # Errors
    /// As [`Learner::load`].
    fn update(&self, loaded: &[f32], out: &mut [f32]) -> anyhow::Result<()> {
        self.weights(out)?;
        out.iter_mut().zip(loaded).for_each(|(out, loaded)| *out -= loaded);
        Ok(())
    }

    /// What is doubtful about the derivatives of the loaded model, a sentence each; for `check --dry-run`. `seed` determines every
    /// draw.
    ///
    /// # Errors
    /// As [`Learner::load`].
    fn doubts(&mut self, seed: u64) -> anyhow::Result<Vec<String>> {
        let _ = seed;
        Ok(Vec::new())
    }

    /// Evaluates the current weights on this client's held-out examples; `None`, or 0 examples, if it has none.
    ///
    /// # Errors
    /// As [`Learner::load`].
    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>>;

    /// As [`Learner::evaluate`], for learners whose evaluations are long enough to be stopped.
    ///
    /// # Errors
    /// As [`Learner::load`], and when `plan.progress` asks the learner to stop.
    fn evaluate_with(&mut self, plan: &EvaluatePlan) -> anyhow::Result<Option<Evaluation>> {
        let _ = plan;
        self.evaluate()
    }
}
