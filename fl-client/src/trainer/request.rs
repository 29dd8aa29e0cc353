//! What the learner's thread asks of the supervising thread, and the answers.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::message::Hello;
use super::tensors::Marks;
use crate::learner::{Evaluation, Fit, FitPlan, Progress, RunTensors};

/// What a learner asks of its trainer.
#[derive(Debug, Clone)]
pub(super) enum Request {
    /// What the trainer says about itself.
    Hello,
    Fit(FitPlan),
    Evaluate(u64),
}

#[derive(Debug)]
pub(super) enum Answer {
    Hello(Hello, Option<i32>),
    Fitted(FitResult),
    /// `None` if the trainer does not evaluate.
    Evaluated(Option<Evaluation>),
}

/// A training, and the marks in the files that it should have written.
#[derive(Debug)]
pub(super) struct FitResult {
    pub(super) fit: Fit,
    pub(super) result: Marks,
    /// `None` if the trainer has written no squared gradients.
    pub(super) squared_gradients: Option<Marks>,
}

#[derive(Debug)]
pub(super) struct Bound {
    pub(super) run: RunTensors,
    pub(super) local: Option<PathBuf>,
    /// A folder for what the trainer keeps from round to round. It need not exist.
    pub(super) kept: Option<PathBuf>,
}

pub(super) enum Command {
    Join(Arc<Bound>),
    Ask(Request, Arc<Progress>, oneshot::Sender<Result<Answer, String>>),
}
