//! The learner behind every built-in model: local training on a client's examples.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use candle_core::{Device, Result, Tensor, Var};
use fl_compress::Layout;
use fl_proto::{Precision, StatePolicy};
use toml::Table;

use super::examples::{self, ModelBatch};
use super::info::LearnerInfo;
use super::local_steps::{self, Gradients};
use super::opened::{OpenModel, Source};
use super::out_of_memory::Pieces;
use super::params::{self, ModelTensors, Params};
use super::roles::TensorDivision;
use super::{derivatives, device, graph, init};
use crate::data::ClientData;
use crate::ops::{self, release_gpu, shapes_once, with_values};
use fl_client::{
    ClassNames, DeviceChoice, EvaluatePlan, Evaluation, Fit, FitPlan, Learner, Progress, RunTensors, release_buffers,
};

/// Running statistics are measured on so many batches of so many examples, at most.
const STATISTICS_BATCHES: usize = 16;
const STATISTICS_BATCH: usize = 64;
/// Derivatives are checked on so many examples, at most.
const DOUBTFUL_BATCH: usize = 16;

/// A built-in model with one client's data. Uses one core.
#[derive(Debug)]
pub struct TrainedModel {
    source: Source,
    /// What the source is opened with.
    params: Params,
    /// Its tensors, whatever a run makes of them.
    pub(super) own: ModelTensors,
    /// The tensors as the joined run divides them.
    divided: TensorDivision,
    pub(super) device: Device,
    pub(super) data: ClientData,
    /// Where local tensors are stored.
    state: Option<PathBuf>,
}

impl TrainedModel {
    /// The model of `learner`, shaped by `data`, with weights zero.
    ///
    /// # Errors
    /// If the model does not suit the data's shape, there is nothing to train on, or the device cannot be used.
    pub fn new(
        learner: &LearnerInfo,
        settings: &Table,
        device: DeviceChoice,
        data: ClientData,
    ) -> anyhow::Result<Self> {
        let name = &learner.name;
        ensure!(!data.train.is_empty(), "learner `{name}` has no example to train on");
        let input = data.train.input();
        ensure!(
            data.test.is_empty() || data.test.input() == input,
            "training and test examples differ in shape"
        );
        let device = device::open(device)?;
        let params = Params::new(&device);
        let source = Source::new(learner, settings, input, &params).with_context(|| format!("learner `{name}`"))?;
        source.open(&params, true)?.model().suits(&data.train)?;
        let own = params.finish()?;
        ensure!(own.trained > 0, "learner `{name}` has no tensor to train");
        Ok(Self {
            source,
            params,
            divided: TensorDivision::own(&own),
            own,
            device,
            data,
            state: None,
        })
    }

    #[must_use]
    pub(crate) fn storing_in(self, state: Option<&Path>) -> Self {
        Self {
            state: state.map(Path::to_owned),
            ..self
        }
    }

    /// Divides the tensors as the model itself does.
    pub(super) fn undivide(&mut self) {
        self.divided = TensorDivision::own(&self.own);
    }

    pub(super) fn expect_all(&self, vars: &[Var], grads: Vec<Option<Tensor>>) -> anyhow::Result<Vec<Tensor>> {
        let mut missing = Vec::new();
        for (var, _) in vars.iter().zip(&grads).filter(|(_, grad)| grad.is_none()) {
            let at = self.own.vars.iter().position(|own| own.id() == var.id());
            missing.extend(at.map(|at| self.own.layout.tensors()[at].name.as_str()));
        }
        ensure!(missing.is_empty(), "{}", graph::without_gradient(&missing));
        Ok(grads.into_iter().flatten().collect())
    }

    /// The model, to be used on this thread.
    pub(super) fn open(&self) -> anyhow::Result<OpenModel<'_>> {
        self.source.open(&self.params, true)
    }

    /// As [`TrainedModel::open`], where no gradients are wanted.
    pub(super) fn open_untracked(&self) -> anyhow::Result<OpenModel<'_>> {
        self.source.open(&self.params, false)
    }

    /// Returns the memory that no tensor uses: between two rounds it is for others.
    pub(super) fn release(&self) -> Result<()> {
        release_buffers();
        release_gpu(&self.device)
    }

    pub(super) fn trained_vars(&self) -> &[Var] {
        &self.divided.vars[..self.divided.trained]
    }

    /// Replaces the trained weights and leaves the buffers. Shapes: `weights: [layout.trained().len()]`.
    pub(super) fn load_trained(&self, weights: &[f32]) -> anyhow::Result<()> {
        Ok(params::load(
            self.trained_vars(),
            self.divided.layout.tensors(),
            weights,
        )?)
    }

    /// Places in the layout of the tensors that training changes in the plan's round.
    pub(super) fn changing(&self, plan: &FitPlan) -> anyhow::Result<Vec<usize>> {
        let opened = self.open()?;
        let trains = |at: &usize, round| opened.model().trains(&self.divided.layout.tensors()[*at].name, round);
        let (here, next): (Vec<usize>, Vec<usize>) = (
            (0..self.divided.trained).filter(|at| trains(at, plan.round)).collect(),
            (0..self.divided.trained)
                .filter(|at| trains(at, plan.round + 1))
                .collect(),
        );
        ensure!(
            here == next || plan.training.state == StatePolicy::Fresh,
            "`state = \"kept\"` needs a learner that trains the same tensors in every round; give `lora` the setting \
             update = \"both\" or \"b-only\""
        );
        Ok(here)
    }

    /// Sets the running statistics to those of the present weights on this client's training examples, and returns the old
    /// ones. Those of a version are averages of its clients', exact, while its weights miss what compression left unsent: in
    /// the first rounds they describe another model.
    fn measure_statistics(&self, progress: &Progress) -> anyhow::Result<Vec<(Var, Tensor)>> {
        let examples = &self.data.train;
        let buffers = &self.divided.buffers;
        if buffers.is_empty() || self.data.test.is_empty() {
            return Ok(Vec::new());
        }
        let opened = self.open()?;
        let mut pieces = Pieces::new(STATISTICS_BATCH, "evaluation");
        let size = STATISTICS_BATCH.min(examples.len());
        let batches = (examples.len() / size).min(STATISTICS_BATCHES);
        let mut sums: Vec<(Var, Tensor)> = Vec::new();
        for at in 0..batches {
            ensure!(!progress.stopped(), "the evaluation was stopped");
            // Each batch is spread over all examples, which may be sorted by class.
            let places = (0..size).map(|k| (k * batches + at) * examples.len() / (size * batches));
            let positions: Vec<u32> = places.map(|at| at as u32).collect();
            // Where the device is out of memory, the first part of a batch stands for it.
            let (mut measured, _) = pieces.first(&positions, |positions| {
                let batch = ModelBatch::of(examples, positions, &self.device)?;
                Ok(opened.measured(&batch.x, buffers)?)
            })?;
            // Those that the run has frozen stay.
            measured.retain(|(buffer, _)| buffers.iter().any(|own| own.id() == buffer.id()));
            for (at, (buffer, own)) in measured.into_iter().enumerate() {
                match sums.get_mut(at) {
                    Some((_, sum)) => *sum = (&*sum + own)?,
                    None => sums.push((buffer, own)),
                }
            }
        }
        let mut averaged = Vec::with_capacity(sums.len());
        for (buffer, sum) in sums {
            averaged.push((buffer.clone(), buffer.as_tensor().copy()?));
            buffer.set(&(sum / batches as f64)?)?;
        }
        Ok(averaged)
    }

    /// Succeeds if the plan may split a batch: running statistics of a program's own model move with each piece.
    pub(super) fn expect_whole_batches(&self, plan: &FitPlan, opened: &OpenModel<'_>) -> anyhow::Result<()> {
        let training = &plan.training;
        let splits = training.micro_batch.is_some_and(|micro| micro < training.batch_size);
        let moves = matches!(opened, OpenModel::Made(_)) && !self.divided.buffers.is_empty();
        ensure!(
            !(splits && moves),
            "`micro_batch` with batch norm: the running statistics would be those of the pieces; delete `micro_batch`, or use a \
             group norm"
        );
        Ok(())
    }

    /// Succeeds if training has left every running statistic finite. Looked at once a round: a GPU waits for each look.
    fn expect_finite_statistics(&self) -> anyhow::Result<()> {
        for buffer in &self.divided.buffers {
            let is_finite = with_values(buffer.as_tensor(), |values| {
                values.iter().all(|value| value.is_finite())
            })?;
            let at = self.own.vars.iter().position(|var| var.id() == buffer.id());
            let name = at.map_or("", |at| &self.own.layout.tensors()[at].name);
            ensure!(
                is_finite,
                "running statistic `{name}` is not finite: one value has no variance; choose a batch size that leaves no batch of \
                 one example, or a layer norm"
            );
        }
        Ok(())
    }

    /// Loss of the examples at `positions`, and its gradient with respect to each of `vars`. `seed` determines what dropout
    /// draws.
    pub(super) fn gradients(
        &self,
        opened: &OpenModel<'_>,
        vars: &[Var],
        positions: &[u32],
        seed: u64,
        precision: Precision,
    ) -> anyhow::Result<Gradients> {
        let batch = ModelBatch::of(&self.data.train, positions, &self.device)?;
        let _shapes = shapes_once(&self.device);
        let (loss, grads) = opened.gradients(&batch, (vars, &self.divided.buffers), seed, precision)?;
        Ok(Gradients {
            loss: f64::from(loss.to_scalar::<f32>()?),
            targets: batch.targets(),
            grads: self.expect_all(vars, grads)?,
        })
    }
}

impl Learner for TrainedModel {
    fn layout(&self) -> Arc<Layout> {
        self.divided.layout.clone()
    }

    fn classes(&self) -> Option<ClassNames> {
        self.data.train.named_classes()
    }

    fn initial(&mut self, seed: u64, _: &Arc<Progress>) -> Option<Vec<f32>> {
        Some(init::fill(&self.divided.layout, &self.divided.inits, seed))
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        ensure!(
            weights.len() == self.divided.layout.len(),
            "{} weights for {}",
            weights.len(),
            self.divided.layout.len()
        );
        self.divided.reset()?;
        Ok(params::load(
            &self.divided.vars,
            self.divided.layout.tensors(),
            weights,
        )?)
    }

    fn join(&mut self, run: &RunTensors) -> anyhow::Result<()> {
        self.undivide();
        if !run.aside.is_empty() || *run.layout != *self.own.layout {
            self.divided = TensorDivision::of(&self.own, run, self.state.as_deref())?;
        }
        Ok(())
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        let places = self.changing(plan)?;
        let layout = self.divided.layout.clone();
        let tensors = layout.tensors();
        let names = places.iter().map(|&at| tensors[at].name.as_str());
        let (names, vars): (Vec<&str>, Vec<Var>) = (names.zip(places.iter().map(|&at| &self.divided.vars[at])))
            .chain(self.divided.trained_here())
            .map(|(name, var)| (name, var.clone()))
            .unzip();
        let precision = ops::precision(&self.device, plan.training.precision)?;
        let opened = self.open()?;
        self.expect_whole_batches(plan, &opened)?;
        let fit = local_steps::train(plan, &names, &vars, &self.data.train, |positions, seed| {
            self.gradients(&opened, &vars, positions, seed, precision)
        });
        let released = self.release();
        let mut fit = fit?;
        released?;
        self.expect_finite_statistics()?;
        self.divided.keep()?;
        // Of tensors that this round leaves alone, the gradients count as zero.
        fit.squared_gradients = fit.squared_gradients.map(|own| {
            let mut all = vec![0.0; self.divided.layout.trained().len()];
            let mut taken = 0;
            for tensor in places.iter().map(|&at| &tensors[at]) {
                all[tensor.offset..][..tensor.len].copy_from_slice(&own[taken..][..tensor.len]);
                taken += tensor.len;
            }
            all
        });
        Ok(fit)
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        ensure!(
            out.len() == self.divided.layout.len(),
            "{} weights for {}",
            out.len(),
            self.divided.layout.len()
        );
        for (var, tensor) in self.divided.vars.iter().zip(self.divided.layout.tensors()) {
            let out = &mut out[tensor.offset..tensor.offset + tensor.len];
            with_values(var.as_tensor(), |values| out.copy_from_slice(values))?;
        }
        Ok(())
    }

    fn update(&self, loaded: &[f32], out: &mut [f32]) -> anyhow::Result<()> {
        ensure!(
            out.len() == self.divided.layout.len() && loaded.len() == out.len(),
            "{} and {} weights for {}",
            loaded.len(),
            out.len(),
            self.divided.layout.len()
        );
        for (var, tensor) in self.divided.vars.iter().zip(self.divided.layout.tensors()) {
            let range = tensor.offset..tensor.offset + tensor.len;
            let loaded = &loaded[range.clone()];
            let out = &mut out[range];
            with_values(var.as_tensor(), |values| {
                let updates = values.iter().zip(loaded).map(|(value, loaded)| value - loaded);
                out.iter_mut().zip(updates).for_each(|(out, update)| *out = update);
            })?;
        }
        Ok(())
    }

    fn doubts(&mut self, seed: u64) -> anyhow::Result<Vec<String>> {
        let opened = self.open()?;
        let OpenModel::Made(_) = &opened else {
            return Ok(Vec::new());
        };
        let count = DOUBTFUL_BATCH.min(self.data.train.len()) as u32;
        let positions: Vec<u32> = (0..count).collect();
        let gradients = || self.gradients(&opened, self.trained_vars(), &positions, seed, Precision::F32);
        let buffers = &self.divided.buffers;
        let before = graph::copies(buffers)?;
        let claimed = gradients()?.grads;
        let wrong = derivatives::wrong(self.trained_vars(), &claimed, || match gradients() {
            Ok(found) => Ok(found.loss),
            Err(error) => Err(candle_core::Error::msg(format!("{error:#}"))),
        });
        graph::set(buffers, &before)?;
        let wrong = wrong?.into_iter().map(|(at, ratio)| {
            let name = &self.divided.layout.tensors()[at].name;
            format!(
                "the gradient of `{name}` is {ratio:.2} times what differences of the loss say: an operation behind it has a wrong \
                 derivative, such as `max_pool2d` of candle, in place of which `fl_learn::max_pool2d` is right"
            )
        });
        Ok(wrong.collect())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        self.evaluate_with(&EvaluatePlan::default())
    }

    fn evaluate_with(&mut self, plan: &EvaluatePlan) -> anyhow::Result<Option<Evaluation>> {
        let averaged = self.measure_statistics(&plan.progress)?;
        let opened = self.open_untracked()?;
        let evaluation = examples::evaluate(opened.model(), &self.data.test, &self.device, &plan.progress);
        averaged.iter().try_for_each(|(buffer, value)| buffer.set(value))?;
        let released = release_gpu(&self.device);
        let evaluation = evaluation?;
        released?;
        Ok(evaluation)
    }
}

#[cfg(test)]
mod tests;
