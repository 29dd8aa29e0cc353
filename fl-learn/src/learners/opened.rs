//! A model as a learner has it: kept, or made anew on the thread that uses it.

use std::sync::Arc;

use candle_core::{Result, Tensor, Var};
use fl_proto::{Precision, caught};
use toml::Table;

use super::examples::ModelBatch;
use super::info::{GraphModel, LearnerInfo, Make, MakeGraph};
use super::model::{BoxedModel, Model};
use super::params::Params;
use super::settings::GivenSettings;
use crate::data::Input;
use crate::ops::Tape;

/// Where a learner's model comes from.
#[derive(Debug)]
pub(super) enum Source {
    Kept(BoxedModel),
    /// A program's own model, which may hold what no other thread may have.
    Made(Recipe),
}

pub(super) struct Recipe {
    make: Arc<dyn MakeGraph>,
    settings: Table,
    input: Input,
}

impl Source {
    pub(super) fn new(learner: &LearnerInfo, settings: &Table, input: Input, params: &Params) -> anyhow::Result<Self> {
        match &learner.make {
            Make::OnTape(make) => Ok(Self::Kept(params.build(true, |vb| Ok(make(input, settings, &vb)?))?)),
            Make::OnGraph(make) => {
                let recipe = Recipe {
                    make: Arc::clone(make),
                    settings: settings.clone(),
                    input,
                };
                recipe.graph(params, true)?;
                Ok(Self::Made(recipe))
            }
        }
    }

    /// The model, for this thread. `trains`: whether its gradients are wanted.
    pub(super) fn open(&self, params: &Params, trains: bool) -> anyhow::Result<OpenModel<'_>> {
        match self {
            Self::Kept(model) => Ok(OpenModel::Kept(model.as_ref())),
            Self::Made(recipe) => Ok(OpenModel::Made(recipe.graph(params, trains)?)),
        }
    }
}

impl Recipe {
    fn graph(&self, params: &Params, trains: bool) -> anyhow::Result<Box<dyn GraphModel>> {
        let made = caught(|| {
            params.build(trains, |vb| {
                let given = GivenSettings::new(&self.settings);
                let graph = self.make.make(vb, self.input, &given)?;
                given.finish()?;
                Ok(graph)
            })
        })
        .map_err(|why| anyhow::anyhow!("making the model panicked: {why}"));
        made.and_then(|made| made)
    }
}

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recipe")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A model on the thread that uses it.
pub(super) enum OpenModel<'a> {
    Kept(&'a dyn Model),
    Made(Box<dyn GraphModel>),
}

impl OpenModel<'_> {
    pub(super) fn model(&self) -> &dyn Model {
        match self {
            Self::Kept(model) => *model,
            Self::Made(graph) => graph.as_model(),
        }
    }

    /// Mean loss of a batch, a scalar, and its gradient with respect to each of `vars`: `None` where the loss does not depend on it.
    /// `buffers` move only if this succeeds.
    pub(super) fn gradients(
        &self,
        batch: &ModelBatch,
        (vars, buffers): (&[Var], &[Var]),
        seed: u64,
        precision: Precision,
    ) -> Result<(Tensor, Vec<Option<Tensor>>)> {
        let model = match self {
            Self::Kept(model) => *model,
            Self::Made(graph) => return graph.gradients(batch, vars, buffers, seed),
        };
        let mut tape = Tape::training(vars, seed).with_precision(precision);
        let loss = batch.loss_of(&mut tape, model)?;
        let grads = tape.backward(&loss, vars)?;
        Ok((loss, grads.into_iter().map(Some).collect()))
    }

    pub(super) fn measured(&self, x: &Tensor, buffers: &[Var]) -> Result<Vec<(Var, Tensor)>> {
        match self {
            Self::Kept(model) => {
                let mut tape = Tape::measuring();
                model.forward(&mut tape, x)?;
                Ok(tape.measured())
            }
            Self::Made(graph) => graph.measured(x, buffers),
        }
    }
}
