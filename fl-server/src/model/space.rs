//! Runs with `train.space`: the tensors that travel are those of z in `w = w0 + P z`, and w0 is the base.

use std::path::Path;
use std::sync::Arc;

use fl_compress::weights::TensorFile;
use fl_compress::{Error, Layout, Role, Space, SpaceSpec, TensorSpec};
use serde::{Deserialize, Serialize};

use crate::config::plan::RunPlan;
use crate::storage::weights::{self, FirstWeights, WeightsError};

/// The space of a run, as its metadata has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredSpace {
    pub(crate) spec: SpaceSpec,
    pub(crate) seed: u64,
}

impl StoredSpace {
    /// The space of a plan, if it has one.
    pub(crate) fn of(plan: &RunPlan) -> Option<Self> {
        let spec = plan.training.space?;
        Some(Self { spec, seed: plan.seed })
    }

    /// The space in the model whose trained tensors are the frozen ones of `aside`. `layout`: the tensors that travel.
    ///
    /// # Errors
    /// As [`Space::new`].
    fn open(self, layout: &Layout, aside: &[TensorSpec]) -> Result<Space, Error> {
        let trained = aside.iter().filter(|tensor| tensor.role == Role::Frozen);
        let trained = trained.map(|tensor| TensorSpec {
            role: Role::Trained,
            ..tensor.clone()
        });
        let others = layout.tensors().iter().filter(|tensor| tensor.role != Role::Trained);
        let full = Layout::of(trained.chain(others.map(TensorSpec::from)))?;
        Space::new(Arc::new(full), self.spec, self.seed)
    }

    /// The model of a version: its layout and values. Shapes: `z: [layout.len()]`; `base`: the safetensors file of w0.
    ///
    /// # Errors
    /// As [`Space::new`]; `Corrupt` or `Mismatch` if `base` is no file of w0.
    pub(crate) fn expand(
        self,
        layout: &Layout,
        aside: &[TensorSpec],
        base: &[u8],
        z: &[f32],
    ) -> Result<(Layout, Vec<f32>), Error> {
        let space = self.open(layout, aside)?;
        let full = space.full();
        let trained = full.tensors().iter().filter(|tensor| tensor.role == Role::Trained);
        let trained = Layout::of(trained.map(TensorSpec::from))?;
        let mut w0 = vec![0.0; full.len()];
        TensorFile::parse(base)?.values(&trained, &mut w0[..trained.len()])?;
        let mut w = vec![0.0; full.len()];
        space.expand(&w0, z, &mut w);
        Ok((Layout::clone(full), w))
    }
}

/// Values of the model: those that travel, or with a space, those of w.
pub(crate) fn model_values(space: Option<StoredSpace>, layout: &Layout, aside: &[TensorSpec]) -> usize {
    if space.is_none() {
        return layout.len();
    }
    let frozen = aside.iter().filter(|tensor| tensor.role == Role::Frozen);
    let w: usize = frozen.filter_map(TensorSpec::values).sum();
    layout.len() - layout.trained().len() + w
}

/// Reads the first weights of a plan. With a space, its z is what travels.
///
/// # Errors
/// As [`weights::read`]; if the space does not suit the tensors, with the key.
pub(crate) fn first_weights(plan: &RunPlan) -> Result<FirstWeights, WeightsError> {
    let first = weights::read(&plan.model, &|tensors, kinds| plan.roles.assign(tensors, kinds))?;
    match StoredSpace::of(plan) {
        Some(space) => in_space(first, space, &plan.model),
        None => Ok(first),
    }
}

fn in_space(first: FirstWeights, space: StoredSpace, path: &Path) -> Result<FirstWeights, WeightsError> {
    if let Some(other) = first.aside.first() {
        let why = format!(
            "`train.space` needs a model without frozen and local tensors, and tensor `{}` is {}; remove `train.space`, or \
             change the roles in [model]",
            other.name,
            other.role.name()
        );
        return Err(weights::invalid(path, &why));
    }
    let invalid = |why: Error| weights::invalid(path, &why);
    let space = Space::new(Arc::new(first.layout), space.spec, space.seed).map_err(invalid)?;
    let trained = space
        .full()
        .tensors()
        .iter()
        .filter(|tensor| tensor.role == Role::Trained);
    let frozen = trained.clone().map(|tensor| TensorSpec {
        role: Role::Frozen,
        ..TensorSpec::from(tensor)
    });
    let raw = trained.map(|tensor| {
        let values = first.values[tensor.offset..][..tensor.len].iter();
        values.flat_map(|value| value.to_le_bytes()).collect()
    });
    let (aside, raw): (Vec<TensorSpec>, Vec<Vec<u8>>) = (frozen.collect(), raw.collect());
    Ok(FirstWeights {
        layout: Layout::clone(space.layout()),
        values: space.first(&first.values),
        base: weights::base(&aside, &raw).map_err(invalid)?,
        aside,
        origin: first.origin,
        doubtful: first.doubtful,
    })
}
