//! The roles that a run gives to the tensors of a model: which travel, and which stay.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use candle_core::{Tensor, Var};
use candle_nn::Init;
use fl_client::{RunTensors, local_path, weights};
use fl_compress::weights::{BasePlan, TensorFile, expect_same};
use fl_compress::{Digest, Layout, Role, TensorSpec};

use super::init;
use super::params::ModelTensors;

#[derive(Debug)]
pub(super) struct TensorDivision {
    /// The tensors that travel.
    pub(super) layout: Arc<Layout>,
    /// One for each tensor of the layout; changing them changes the model.
    pub(super) vars: Vec<Var>,
    pub(super) inits: Vec<Init>,
    /// The first `trained` of `vars` are trained; buffers follow.
    pub(super) trained: usize,
    /// Running statistics that training moves, whether they travel or not.
    pub(super) buffers: Vec<Var>,
    aside: Vec<Aside>,
    file: Option<PathBuf>,
}

/// A tensor that stays.
#[derive(Debug)]
struct Aside {
    spec: TensorSpec,
    /// Whether training changes it by a gradient.
    is_trained: bool,
    var: Var,
    /// What a training begins with.
    value: Tensor,
}

impl TensorDivision {
    /// As the model itself divides them: all travel.
    pub(super) fn own(own: &ModelTensors) -> Self {
        Self {
            layout: own.layout.clone(),
            vars: own.vars.clone(),
            inits: own.inits.clone(),
            trained: own.trained,
            buffers: own.vars[own.trained..].to_vec(),
            aside: Vec::new(),
            file: None,
        }
    }

    /// As `run` divides them. Frozen tensors get their values: those that the model draws by the run's seed, or else those of the base
    /// file. Local ones have those of the last training, in a file of `state`, or else those that the model draws.
    pub(super) fn of(own: &ModelTensors, run: &RunTensors, state: Option<&Path>) -> anyhow::Result<Self> {
        let places = places(own, run)?;
        let (travel, stay) = places.split_at(run.layout.tensors().len());
        let trained = run
            .layout
            .tensors()
            .iter()
            .filter(|tensor| tensor.role == Role::Trained);
        let mut divided = Self {
            layout: run.layout.clone(),
            vars: travel.iter().map(|&at| own.vars[at].clone()).collect(),
            inits: travel.iter().map(|&at| own.inits[at]).collect(),
            trained: trained.count(),
            buffers: Vec::new(),
            aside: Vec::with_capacity(stay.len()),
            file: None,
        };
        let drawn = init::fill(&own.layout, &own.inits, run.seed);
        let drawn = |at: usize| &drawn[own.layout.tensors()[at].offset..][..own.layout.tensors()[at].len];
        let mut frozen = Vec::new();
        let mut drawn_frozen = Vec::new();
        for (spec, &at) in run.aside.iter().zip(stay).filter(|(spec, _)| spec.role == Role::Frozen) {
            frozen.push(spec.clone());
            drawn_frozen.push(drawn(at));
        }
        let mut frozen = frozen_values(&frozen, &drawn_frozen, run)?.into_iter();
        for (spec, &at) in run.aside.iter().zip(stay) {
            let frozen = if spec.role == Role::Frozen { frozen.next() } else { None };
            let values = frozen.as_deref().unwrap_or_else(|| drawn(at));
            let var = own.vars[at].clone();
            divided.aside.push(Aside {
                spec: spec.clone(),
                is_trained: spec.role == Role::Local && own.layout.tensors()[at].role == Role::Trained,
                value: Tensor::from_slice(values, var.shape(), var.device())?,
                var,
            });
        }
        for (at, tensor) in own.layout.tensors().iter().enumerate() {
            let is_frozen = run
                .aside
                .iter()
                .any(|spec| spec.name == tensor.name && spec.role == Role::Frozen);
            if tensor.role == Role::Buffer && !is_frozen {
                divided.buffers.push(own.vars[at].clone());
            }
        }
        if let Some(state) = state.filter(|_| run.aside.iter().any(|spec| spec.role == Role::Local)) {
            let file = local_path(state, run, "safetensors")?;
            if file.exists() {
                divided.read_local(&file).with_context(|| {
                    format!(
                        "{}: restore it from a backup, or delete it to start with first local tensors",
                        file.display()
                    )
                })?;
            }
            divided.file = Some(file);
        }
        divided.reset()?;
        Ok(divided)
    }

    pub(super) fn trained_here(&self) -> impl Iterator<Item = (&str, &Var)> {
        let here = self.aside.iter().filter(|aside| aside.is_trained);
        here.map(|aside| (aside.spec.name.as_str(), &aside.var))
    }

    pub(super) fn reset(&self) -> candle_core::Result<()> {
        self.aside.iter().try_for_each(|aside| aside.var.set(&aside.value))
    }

    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        let local = self.aside.iter_mut().filter(|aside| aside.spec.role == Role::Local);
        for aside in local {
            aside.value = aside.var.as_detached_tensor().copy()?;
        }
        let Some(file) = &self.file else { return Ok(()) };
        let layout = self.local_layout()?;
        let mut values = Vec::new();
        for tensor in layout.tensors() {
            let aside = self.aside.iter().find(|aside| aside.spec.name == tensor.name);
            let aside = aside.context("a local tensor without a value")?;
            values.extend(aside.value.flatten_all()?.to_vec1::<f32>()?);
        }
        weights::export(file, &layout, &values)
    }

    fn read_local(&mut self, file: &Path) -> anyhow::Result<()> {
        let layout = self.local_layout()?;
        let values = weights::import(file, &layout)?;
        for tensor in layout.tensors() {
            let aside = self.aside.iter_mut().find(|aside| aside.spec.name == tensor.name);
            let aside = aside.context("a local tensor without a place")?;
            let stored = &values[tensor.offset..][..tensor.len];
            aside.value = Tensor::from_slice(stored, tensor.shape.as_slice(), aside.var.device())?;
        }
        Ok(())
    }

    fn local_layout(&self) -> anyhow::Result<Layout> {
        let local = self.aside.iter().filter(|aside| aside.spec.role == Role::Local);
        let plain = local.map(|aside| TensorSpec {
            role: Role::Trained,
            ..aside.spec.clone()
        });
        Ok(Layout::of(plain)?)
    }
}

/// Places in the model of the run's tensors: of those that travel, then of those that stay.
fn places(own: &ModelTensors, run: &RunTensors) -> anyhow::Result<Vec<usize>> {
    let tensors = own.layout.tensors();
    let travel = run.layout.tensors().iter().map(TensorSpec::from);
    let mut places = Vec::with_capacity(tensors.len());
    for spec in travel.chain(run.aside.iter().cloned()) {
        let found = tensors.iter().position(|tensor| tensor.name == spec.name);
        let Some(at) = found.filter(|at| (&tensors[*at].shape, tensors[*at].dtype) == (&spec.shape, spec.dtype)) else {
            if run.aside.is_empty() {
                expect_same(&own.layout, &run.layout)?;
            }
            let name = &spec.name;
            let shape = &spec.shape;
            let dtype = spec.dtype.name();
            match found.map(|at| &tensors[at]) {
                None => bail!("tensor `{name}` of the run, {shape:?} of {dtype}, is not in the model"),
                Some(have) => bail!(
                    "tensor `{name}` of the run, {shape:?} of {dtype}, is {:?} of {} in the model",
                    have.shape,
                    have.dtype.name()
                ),
            }
        };
        ensure!(
            !(tensors[at].role == Role::Buffer && spec.role == Role::Trained) && spec.role != Role::Counter,
            "tensor `{}` is `{}` in the run, and running statistics in the model; name it in `buffer`, `local` or `frozen` of \
             [model] in run.toml",
            spec.name,
            spec.role.name()
        );
        places.push(at);
    }
    if let Some(missing) = (0..tensors.len()).find(|at| !places.contains(at)) {
        bail!("tensor `{}` of the model is not in the run", tensors[missing].name);
    }
    Ok(places)
}

/// The values of the run's `frozen` tensors: `drawn`, or else what the base file holds, whichever has the digest of the run's base.
pub(super) fn frozen_values(
    frozen: &[TensorSpec],
    drawn: &[&[f32]],
    run: &RunTensors,
) -> anyhow::Result<Vec<Vec<f32>>> {
    let Some(plan) = BasePlan::of(frozen)? else {
        return Ok(Vec::new());
    };
    let raw = drawn
        .iter()
        .map(|values| values.iter().flat_map(|value| value.to_le_bytes()).collect());
    let raw: Vec<Vec<u8>> = raw.collect();
    if Some(Digest::of(&plan.file(&raw)?)) == run.base {
        return Ok(drawn.iter().map(|values| values.to_vec()).collect());
    }
    let Some(path) = &run.base_file else {
        bail!(
            "the run's frozen tensors are not those that the learner draws by its seed {}; set `serve_base = true` in [model] of \
             the run, or put the file of the first weights into the folder `models` of client.toml",
            run.seed
        );
    };
    let plain = frozen.iter().map(|spec| TensorSpec {
        role: Role::Trained,
        ..spec.clone()
    });
    let layout = Layout::of(plain)?;
    let mut all = vec![0.0; layout.len()];
    let read = std::fs::read(path).map_err(anyhow::Error::from);
    read.and_then(|bytes| Ok(TensorFile::parse(&bytes)?.values(&layout, &mut all)?))
        .with_context(|| path.display().to_string())?;
    Ok(frozen
        .iter()
        .map(|spec| {
            let tensor = layout.tensors().iter().find(|tensor| tensor.name == spec.name);
            tensor.map_or_else(Vec::new, |tensor| all[tensor.offset..][..tensor.len].to_vec())
        })
        .collect())
}

#[cfg(test)]
mod tests;
