//! What a user implements to bring a model and data of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fl_compress::Layout;
use fl_proto::Training;

/// What to do in one round.
#[derive(Debug, Clone)]
pub struct FitPlan {
    /// Local SGD settings of the run.
    pub training: Training,
    /// The round, from 1.
    pub round: u64,
    /// Number of rounds of the run.
    pub rounds: u64,
    /// Seed of every random choice of this client in this round.
    pub seed: u64,
    /// Where the learner says how far it is, and learns that it should stop.
    pub progress: Arc<Progress>,
}

/// Shared between a learner at work and whoever watches it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Says that `done` of `total` steps are made.
    pub fn set(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Steps made and steps in all (0 before the first call of [`Progress::set`]).
    pub fn read(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Asks the learner to give up: the round is over or the process is stopping.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether to give up. A learner looks once a step and then returns an error.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What a round of local training came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Examples the update stands for: its weight in the average.
    pub examples: u64,
    /// Mean training loss over the round.
    pub loss: f64,
}

/// What an evaluation on held-out examples came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Examples evaluated.
    pub examples: u64,
    /// Mean loss.
    pub loss: f64,
    /// Examples classified correctly.
    pub correct: u64,
}

/// A model and the data it is trained on. The client calls it from one thread at a time, never from an async task.
pub trait Learner: Send {
    /// Names and shapes of the model's tensors.
    fn layout(&self) -> Arc<Layout>;

    /// First weights of a run with this `seed`, if the learner can make them: a new client whose weights are the
    /// server's to the bit then downloads no model. Returns `[layout.len()]`; the same on every machine.
    fn initial(&self, seed: u64) -> Option<Vec<f32>> {
        let _ = seed;
        None
    }

    /// Replaces the model's weights. Shapes: `weights: [layout.len()]`.
    ///
    /// # Errors
    /// Whatever the learner cannot do; the client reports it and leaves the round.
    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()>;

    /// Trains from the loaded weights.
    ///
    /// # Errors
    /// As [`Learner::load`], and when the plan's progress says stop.
    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit>;

    /// Copies the current weights out. Shapes: `out: [layout.len()]`.
    ///
    /// # Errors
    /// As [`Learner::load`].
    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()>;

    /// Evaluates the current weights on this client's held-out examples; `None` if it has none.
    ///
    /// # Errors
    /// As [`Learner::load`].
    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>>;
}
