//! What a model is.

use std::fmt;

use candle_core::{Result, Tensor};

use crate::data::Examples;
use crate::ops::{self, Tape};

pub(super) type BoxedModel = Box<dyn Model + Send>;

/// A model: layers, and how an example passes through them.
pub(super) trait Model: fmt::Debug {
    /// Shapes: `x: [batch, channels, height, width]`, returns `[batch, classes]`, before softmax; of a text,
    /// `x: [batch, tokens]` of `u32`, returns `[batch * tokens, vocabulary]`.
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor>;

    /// Mean loss of `labels`, one for each row of the logits, as [`ops::cross_entropy`]. A language model overrides it, because
    /// the logits of a large vocabulary need not all be kept.
    fn cross_entropy(&self, tape: &mut Tape, x: &Tensor, labels: &[u32]) -> Result<Tensor> {
        let logits = self.forward(tape, x)?;
        ops::cross_entropy(tape, &logits, labels)
    }

    /// Succeeds if tokens and classes mean the same in `data` and in the model.
    fn suits(&self, data: &Examples) -> anyhow::Result<()> {
        let _ = data;
        Ok(())
    }

    /// Whether the trained tensor `name` changes in round `round`.
    fn trains(&self, name: &str, round: u64) -> bool {
        let _ = (name, round);
        true
    }
}
