//! What a learner's file says of it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use candle_core::{Result, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use toml::Table;

use super::settings::{Checked, Given};
use crate::data::{Examples, Input};
use crate::ops::{self, Tape};

/// A row of [`LEARNERS`](super::LEARNERS).
#[derive(Debug, Clone)]
pub struct LearnerInfo {
    /// The name that configurations and command lines use.
    pub name: Cow<'static, str>,
    /// The model in a few words.
    pub about: &'static str,
    /// Shape and classes of the examples that the model is usually trained on, if there are such.
    pub input: Option<Input>,
    /// Succeeds if the model has these settings.
    pub(super) check: fn(&Table) -> Checked,
    /// Settings that name a file or folder.
    pub(super) paths: &'static [&'static str],
    pub(super) make: Make,
}

/// A model that a learner keeps.
pub(super) type BoxedModel = Box<dyn Model + Send>;

/// A program's own model, for these settings. Only `forward_t` is called, on the thread that made it.
pub(super) type MakeModule =
    dyn Fn(VarBuilder<'static>, Input, &Given<'_>) -> anyhow::Result<Box<dyn ModuleT>> + Send + Sync;

/// How a model is made. Fails if the model does not suit the input.
#[derive(Clone)]
pub(super) enum Make {
    /// Of the operations of this crate. It asks the `VarBuilder` for its tensors.
    OnTape(fn(Input, &Table, &VarBuilder<'_>) -> Result<BoxedModel>),
    /// Of candle's operations, on candle's graph.
    OnGraph(Arc<MakeModule>),
}

impl fmt::Debug for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnTape(_) => "OnTape",
            Self::OnGraph(_) => "OnGraph",
        })
    }
}

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

/// 28x28 grey images of ten classes, as in MNIST.
pub(super) const DIGITS: Input = Input::of_classes([1, 28, 28], 10);

/// Texts of 64 bytes.
pub(super) const TEXT: Input = Input::of_text(64, 256);
