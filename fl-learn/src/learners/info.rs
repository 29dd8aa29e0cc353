//! What a learner's file says of it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use candle_core::{Result, Tensor, Var, bail};
use candle_nn::VarBuilder;
use toml::Table;

use super::examples::ModelBatch;
use super::model::{BoxedModel, Model};
use super::settings::{self, CheckResult, GivenSettings, Settings};
use crate::data::{Input, Target};

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
    pub(super) check: fn(&Table) -> CheckResult,
    /// Settings that name a file or folder.
    pub(super) paths: &'static [&'static str],
    pub(super) make: Make,
}

impl LearnerInfo {
    /// A built-in learner without paths among its settings.
    pub(super) const fn on_tape<S: Settings>(
        name: &'static str,
        about: &'static str,
        input: Option<Input>,
        make: fn(Input, &Table, &VarBuilder<'_>) -> Result<BoxedModel>,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            about,
            input,
            check: settings::check::<S>,
            paths: &[],
            make: Make::OnTape(make),
        }
    }
}

/// How a model is made. Fails if the model does not suit the input.
#[derive(Clone)]
pub(super) enum Make {
    /// Of the operations of this crate. It asks the `VarBuilder` for its tensors.
    OnTape(fn(Input, &Table, &VarBuilder<'_>) -> Result<BoxedModel>),
    /// Of candle's operations, on candle's graph. Behind a pointer that only [`LearnerInfo::of_graph`] makes: a program without such a
    /// model has no code of candle's graph.
    OnGraph(Arc<dyn MakeGraph>),
}

/// Makes a program's own model, for these settings, on the thread that uses it.
pub(super) trait MakeGraph: Send + Sync {
    fn make(
        &self,
        vb: VarBuilder<'static>,
        input: Input,
        given: &GivenSettings<'_>,
    ) -> anyhow::Result<Box<dyn GraphModel>>;
}

pub(super) trait GraphModel: Model {
    fn as_model(&self) -> &dyn Model;

    /// As [`OpenModel::gradients`](super::opened::OpenModel::gradients).
    fn gradients(
        &self,
        batch: &ModelBatch,
        vars: &[Var],
        buffers: &[Var],
        seed: u64,
    ) -> Result<(Tensor, Vec<Option<Tensor>>)>;

    /// As [`OpenModel::measured`](super::opened::OpenModel::measured).
    fn measured(&self, x: &Tensor, buffers: &[Var]) -> Result<Vec<(Var, Tensor)>>;
}

impl fmt::Debug for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnTape(_) => "OnTape",
            Self::OnGraph(_) => "OnGraph",
        })
    }
}

/// 28x28 grey images of ten classes, as in MNIST.
pub(super) const DIGITS: Input = Input::of_classes([1, 28, 28], 10);

/// Texts of 64 bytes.
pub(super) const TEXT: Input = Input::of_text(64, 256);

pub(super) fn expect_texts(input: Input) -> Result<()> {
    if input.target != Target::NextToken {
        bail!("expects texts, not examples of {:?}", input.shape);
    }
    Ok(())
}
