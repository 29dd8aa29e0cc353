//! The learner behind every built-in model: local SGD on a client's examples.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use candle_core::{Device, Tensor, Var};
use fl_compress::Layout;
use fl_proto::{Length, Training};

use super::device::DeviceChoice;
use super::model::Model;
use super::params::Params;
use crate::data::{ClientData, Examples, Rng};
use crate::learner::{Evaluation, Fit, FitPlan, Learner};
use crate::ops::{Sgd, Tape, cross_entropy};

/// Examples evaluated at a time.
const EVALUATE: usize = 256;

/// A built-in model with one client's data. Uses one core.
#[derive(Debug)]
pub struct Classifier {
    model: Model,
    layout: Arc<Layout>,
    /// The model's tensors in the order of the layout; changing them changes the model.
    vars: Vec<Var>,
    device: Device,
    data: ClientData,
}

impl Classifier {
    /// The model called `name`, shaped by `data`, with weights zero.
    ///
    /// # Errors
    /// As [`build`](super::build).
    pub fn new(name: &str, device: DeviceChoice, data: ClientData) -> anyhow::Result<Self> {
        ensure!(!data.train.is_empty(), "learner `{name}` has no example to train on");
        let input = data.train.input();
        ensure!(data.test.is_empty() || data.test.input() == input, "training and test examples differ in shape");
        let device = device.open()?;
        let mut params = Params::new(&device);
        let model = Model::new(name, input, &mut params).with_context(|| format!("learner `{name}`"))?;
        let (layout, vars) = params.finish()?;
        Ok(Self { model, layout: Arc::new(layout), vars, device, data })
    }

    /// The examples at `positions` as the model takes them: `[batch, channels, height, width]` and labels.
    fn batch(&self, examples: &Examples, positions: &[u32]) -> anyhow::Result<(Tensor, Vec<u32>)> {
        let [channels, height, width] = examples.input().shape;
        let mut values = Vec::with_capacity(positions.len() * examples.input().len());
        let mut labels = Vec::with_capacity(positions.len());
        examples.batch(positions, &mut values, &mut labels);
        let x = Tensor::from_vec(values, (positions.len(), channels, height, width), &self.device)?;
        Ok((x, labels))
    }

    /// One step of SGD on the examples at `positions`; returns their mean loss before it.
    fn step(&self, sgd: &mut Sgd, positions: &[u32]) -> anyhow::Result<f64> {
        let (x, labels) = self.batch(&self.data.train, positions)?;
        let mut tape = Tape::default();
        let logits = self.model.forward(&mut tape, &x)?;
        let loss = cross_entropy(&mut tape, &logits, &labels)?;
        sgd.step(&self.vars, tape.backward(&loss, &self.vars)?)?;
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }
}

impl Learner for Classifier {
    fn layout(&self) -> Arc<Layout> {
        self.layout.clone()
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        ensure!(weights.len() == self.layout.len(), "{} weights for {}", weights.len(), self.layout.len());
        for (var, tensor) in self.vars.iter().zip(self.layout.tensors()) {
            let values = &weights[tensor.offset..tensor.offset + tensor.len];
            var.set(&Tensor::from_slice(values, tensor.shape.as_slice(), &self.device)?)?;
        }
        Ok(())
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        let training = &plan.training;
        let examples = self.data.train.len();
        let batch = (training.batch_size as usize).clamp(1, examples);
        let per_epoch = examples.div_ceil(batch) as u64;
        let steps = steps(training, per_epoch);
        let rate = training.learning_rate_in(plan.round, plan.rounds);
        let mut sgd = Sgd::new(&self.vars, rate, training.momentum, training.proximal)?;
        sgd.weight_decay = training.weight_decay;
        sgd.clip_norm = training.clip_norm;

        let (mut order, mut loss, mut seen) = (Vec::new(), 0.0, 0u64);
        plan.progress.set(0, steps);
        for step in 0..steps {
            if plan.progress.stopped() {
                bail!("training was stopped after {step} of {steps} steps");
            }
            if step % per_epoch == 0 {
                order = self.data.train.shuffled(Rng::of(&[plan.seed, step / per_epoch]).bits());
            }
            let first = (step % per_epoch) as usize * batch;
            let positions = &order[first..examples.min(first + batch)];
            let own = self.step(&mut sgd, positions)?;
            ensure!(own.is_finite(), "the loss became {own} in step {step}; try a lower learning rate or a clip norm");
            loss += own * positions.len() as f64;
            seen += positions.len() as u64;
            plan.progress.set(step + 1, steps);
        }
        Ok(Fit { examples: examples as u64, loss: loss / seen.max(1) as f64 })
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        ensure!(out.len() == self.layout.len(), "{} weights for {}", out.len(), self.layout.len());
        for (var, tensor) in self.vars.iter().zip(self.layout.tensors()) {
            let values = var.as_tensor().flatten_all()?.to_vec1::<f32>()?;
            out[tensor.offset..tensor.offset + tensor.len].copy_from_slice(&values);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        let examples = &self.data.test;
        if examples.is_empty() {
            return Ok(None);
        }
        let positions: Vec<u32> = (0..examples.len() as u32).collect();
        let (mut loss, mut correct) = (0.0, 0);
        for positions in positions.chunks(EVALUATE) {
            let (x, labels) = self.batch(examples, positions)?;
            let mut tape = Tape::default();
            let logits = self.model.forward(&mut tape, &x)?;
            loss += f64::from(cross_entropy(&mut tape, &logits, &labels)?.to_scalar::<f32>()?) * labels.len() as f64;
            let answers = logits.argmax(1)?.to_vec1::<u32>()?;
            correct += answers.iter().zip(&labels).filter(|(answer, label)| answer == label).count() as u64;
        }
        let examples = examples.len() as u64;
        Ok(Some(Evaluation { examples, loss: loss / examples as f64, correct }))
    }
}

/// Optimiser steps of one round.
fn steps(training: &Training, per_epoch: u64) -> u64 {
    match training.length {
        Length::Epochs(epochs) => u64::from(epochs) * per_epoch,
        Length::Steps(steps) => u64::from(steps),
    }
}
