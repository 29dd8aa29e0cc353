//! The wrapper around a built-in learner for runs with `train.space`: z of `w = w0 + P z` is loaded, trained and returned; the
//! learner inside computes losses and gradients of `w`, and evaluates `w`. Without a space, it is the learner inside.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use candle_core::{DType, Device, Tensor, Var};
use fl_compress::weights::expect_same;
use fl_compress::{Layout, Role, Space, TensorSpec};

use super::local_steps::{self, Gradients};
use super::roles::frozen_values;
use super::trained::TrainedModel;
use crate::ops;
use fl_client::{ClassNames, EvaluatePlan, Evaluation, Fit, FitPlan, Learner, Progress, RunTensors};

/// A built-in learner that also trains in spaces.
#[derive(Debug)]
pub(super) struct InSpace {
    inner: TrainedModel,
    /// Of the joined run.
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Bound {
    space: Space,
    /// `[space.full().len()]`
    w0: Vec<f32>,
    /// The loaded or trained values, without the buffers that training has moved: `[space.layout().len()]`.
    z: Vec<f32>,
}

impl InSpace {
    pub(super) fn new(inner: TrainedModel) -> Self {
        Self { inner, bound: None }
    }
}

impl Learner for InSpace {
    fn layout(&self) -> Arc<Layout> {
        self.inner.layout()
    }

    fn trains_in_spaces(&self) -> bool {
        true
    }

    fn join(&mut self, tensors: &RunTensors) -> anyhow::Result<()> {
        self.bound = None;
        let Some(spec) = tensors.space else {
            return self.inner.join(tensors);
        };
        self.inner.undivide();
        let space = Space::new(self.inner.layout(), spec, tensors.seed)?;
        expect_same(space.layout(), &tensors.layout)?;
        let w0 = first_weights(&mut self.inner, tensors)?;
        self.bound = Some(Bound {
            z: space.first(&w0),
            space,
            w0,
        });
        Ok(())
    }

    fn classes(&self) -> Option<ClassNames> {
        self.inner.classes()
    }

    fn initial(&mut self, seed: u64, progress: &Arc<Progress>) -> Option<Vec<f32>> {
        match &self.bound {
            Some(bound) => Some(bound.space.first(&bound.w0)),
            None => self.inner.initial(seed, progress),
        }
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        let Some(Bound { space, w0, z }) = &mut self.bound else {
            return self.inner.load(weights);
        };
        let wanted = z.len();
        ensure!(weights.len() == wanted, "{} weights for {wanted}", weights.len());
        z.copy_from_slice(weights);
        let mut w = vec![0.0; w0.len()];
        space.expand(w0, z, &mut w);
        self.inner.load(&w)
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        let Some(bound) = &mut self.bound else {
            return self.inner.fit(plan);
        };
        let fit = bound.fit(&self.inner, plan);
        let released = self.inner.release();
        let fit = fit?;
        released?;
        Ok(fit)
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        let Some(Bound { space, w0, z }) = &self.bound else {
            return self.inner.weights(out);
        };
        let wanted = z.len();
        ensure!(out.len() == wanted, "{} weights for {wanted}", out.len());
        let mut w = vec![0.0; w0.len()];
        self.inner.weights(&mut w)?;
        let trained = space.layout().trained().end;
        out[..trained].copy_from_slice(&z[..trained]);
        out[trained..].copy_from_slice(&w[space.full().trained().end..]);
        Ok(())
    }

    fn update(&self, loaded: &[f32], out: &mut [f32]) -> anyhow::Result<()> {
        if self.bound.is_none() {
            return self.inner.update(loaded, out);
        }
        self.weights(out)?;
        out.iter_mut().zip(loaded).for_each(|(out, loaded)| *out -= loaded);
        Ok(())
    }

    fn doubts(&mut self, seed: u64) -> anyhow::Result<Vec<String>> {
        self.inner.doubts(seed)
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        self.inner.evaluate()
    }

    fn evaluate_with(&mut self, plan: &EvaluatePlan) -> anyhow::Result<Option<Evaluation>> {
        self.inner.evaluate_with(plan)
    }
}

impl Bound {
    /// The local steps of one round, on z. `inner` has the weights of the loaded z.
    fn fit(&mut self, inner: &TrainedModel, plan: &FitPlan) -> anyhow::Result<Fit> {
        let Self { space, w0, z } = self;
        let w_vars = inner.trained_vars();
        ensure!(
            inner.changing(plan)?.len() == w_vars.len(),
            "`train.space` needs a learner that trains the same tensors in every round; give `lora` the setting update = \"both\""
        );
        let block = space.block(plan.round);
        let parts: Vec<Part<'_>> = (space.layout().tensors().iter())
            .filter(|tensor| tensor.role == Role::Trained)
            .zip(space.trained(block))
            .map(|(tensor, values)| Part { tensor, values })
            .collect();
        let names: Vec<&str> = parts.iter().map(|part| part.tensor.name.as_str()).collect();
        let vars = (parts
            .iter()
            .map(|part| Var::from_tensor(&part.of(z)?))
            .collect::<candle_core::Result<Vec<_>>>())?;
        let of_z = space.layout().trained().len();
        let of_w = space.full().trained().len();
        let mut others = vec![0.0; w0.len()];
        space.expand_others(w0, z, block, &mut others);
        let mut w = others.clone();
        let mut g = vec![0.0; of_w];
        let mut projected = vec![0.0; of_z];
        let precision = ops::precision(&inner.device, plan.training.precision)?;
        let opened = inner.open()?;
        inner.expect_whole_batches(plan, &opened)?;
        let mut fit = local_steps::train(plan, &names, &vars, &inner.data.train, |positions, seed| {
            read(&vars, &parts, z)?;
            w.copy_from_slice(&others);
            space.add_block(z, block, &mut w);
            inner.load_trained(&w[..of_w])?;
            let own = inner.gradients(&opened, w_vars, positions, seed, precision)?;
            gather(&own.grads, &mut g)?;
            space.project(&g, block, &mut projected);
            let grads = parts.iter().map(|part| part.of(&projected));
            Ok(Gradients {
                grads: grads.collect::<candle_core::Result<_>>()?,
                ..own
            })
        })?;
        read(&vars, &parts, z)?;
        space.expand(w0, z, &mut w);
        inner.load_trained(&w[..of_w])?;
        fit.squared_gradients = fit.squared_gradients.map(|squares| scatter(&squares, &parts, of_z));
        Ok(fit)
    }
}

struct Part<'a> {
    tensor: &'a fl_compress::Tensor,
    values: Range<usize>,
}

impl Part<'_> {
    /// These values of `all`, in the tensor's shape if they are all of it. z is small: it stays on the CPU, where P is.
    fn of(&self, all: &[f32]) -> candle_core::Result<Tensor> {
        let values = &all[self.values.clone()];
        if values.len() == self.tensor.len {
            Tensor::from_slice(values, self.tensor.shape.as_slice(), &Device::Cpu)
        } else {
            Tensor::from_slice(values, values.len(), &Device::Cpu)
        }
    }
}

fn read(vars: &[Var], parts: &[Part<'_>], z: &mut [f32]) -> anyhow::Result<()> {
    for (var, part) in vars.iter().zip(parts) {
        gather([var.as_tensor()], &mut z[part.values.clone()])?;
    }
    Ok(())
}

/// `means`, one part after another, at their places among the `len` trained values of z; zero where this round trains nothing.
fn scatter(means: &[f32], parts: &[Part<'_>], len: usize) -> Vec<f32> {
    let mut all = vec![0.0; len];
    let mut rest = means;
    for part in parts {
        let (own, later) = rest.split_at(part.values.len());
        all[part.values.clone()].copy_from_slice(own);
        rest = later;
    }
    all
}

/// The values of tensors, one after another. Shapes: `out` may be longer.
fn gather<'a>(tensors: impl IntoIterator<Item = &'a Tensor>, out: &mut [f32]) -> anyhow::Result<()> {
    let mut rest = out;
    for tensor in tensors {
        let values = ops::to_dtype(tensor, DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let (now, later) = std::mem::take(&mut rest)
            .split_at_mut_checked(values.len())
            .context("a gradient has another shape than its tensor")?;
        now.copy_from_slice(&values);
        rest = later;
    }
    Ok(())
}

/// w0: what the learner draws by the run's seed, or else the base file, whichever has the digest of the run's base. Buffers and
/// counters are those that the learner draws.
fn first_weights(inner: &mut TrainedModel, tensors: &RunTensors) -> anyhow::Result<Vec<f32>> {
    let full = inner.layout();
    let trained = || full.tensors().iter().filter(|tensor| tensor.role == Role::Trained);
    let frozen = |tensor| TensorSpec {
        role: Role::Frozen,
        ..TensorSpec::from(tensor)
    };
    let expected: Vec<TensorSpec> = trained().map(frozen).collect();
    if let Some((have, want)) = expected.iter().zip(&tensors.aside).find(|(have, want)| have != want) {
        bail!("tensor `{}` of the run is not `{}` of the model", want.name, have.name);
    }
    ensure!(
        expected.len() == tensors.aside.len(),
        "the run has {} frozen tensors, the model {}",
        tensors.aside.len(),
        expected.len()
    );
    let mut w0 = inner
        .initial(tensors.seed, &Arc::default())
        .context("the learner draws no first weights")?;
    let drawn: Vec<&[f32]> = trained().map(|tensor| &w0[tensor.offset..][..tensor.len]).collect();
    let values = frozen_values(&expected, &drawn, tensors)?.concat();
    w0[..values.len()].copy_from_slice(&values);
    Ok(w0)
}

#[cfg(test)]
mod tests;
