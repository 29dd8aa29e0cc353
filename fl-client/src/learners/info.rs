//! What a learner's file says of it.

use std::fmt;

use candle_core::{Result, Tensor};

use super::params::Params;
use crate::data::Input;
use crate::ops::Tape;

/// A row of [`LEARNERS`](super::LEARNERS).
#[derive(Debug, Clone, Copy)]
pub struct LearnerInfo {
    /// The name that configurations and command lines use.
    pub name: &'static str,
    /// The model in a few words.
    pub about: &'static str,
    /// Shape and classes of the examples that the model is usually trained on.
    pub input: Input,
    /// Adds the model's tensors to `Params` and returns the model. Fails if the model does not suit the input.
    pub(super) model: fn(Input, &mut Params) -> Result<Box<dyn Model>>,
}

/// A model: layers, and how an example passes through them.
pub(super) trait Model: fmt::Debug + Send {
    /// Shapes: `x: [batch, channels, height, width]`; returns `[batch, classes]`, before softmax.
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor>;
}

/// 28x28 grey images of ten classes, as in MNIST.
pub(super) const DIGITS: Input = Input::of_classes([1, 28, 28], 10);
