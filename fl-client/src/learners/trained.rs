//! The learner behind every built-in model: local training on a client's examples.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use candle_core::{DType, Device, Tensor, Var};
use fl_compress::Layout;
use fl_proto::{Precision, StatePolicy};
use toml::Table;

use super::device::DeviceChoice;
use super::examples::{self, ModelBatch};
use super::info::{LearnerInfo, Model};
use super::init::{self, Init};
use super::local_steps::{self, Gradients};
use super::params::Params;
use crate::allocator;
use crate::data::{ClientData, Examples, Input};
use crate::learner::{EvaluatePlan, Evaluation, Fit, FitPlan, Learner, Progress};
use crate::ops::Tape;

/// A built-in model with one client's data. Uses one core.
#[derive(Debug)]
pub struct Trained {
    model: Box<dyn Model>,
    layout: Arc<Layout>,
    /// The model's tensors in the order of the layout; changing them changes the model.
    vars: Vec<Var>,
    /// The first `trained` of `vars` are trained; buffers follow.
    trained: usize,
    inits: Vec<Init>,
    device: Device,
    data: ClientData,
}

impl Trained {
    /// The model of `learner`, shaped by `data`, with weights zero.
    ///
    /// # Errors
    /// As [`LearnerInfo::build`].
    pub fn new(
        learner: &LearnerInfo,
        settings: &Table,
        device: DeviceChoice,
        data: ClientData,
    ) -> anyhow::Result<Self> {
        let name = learner.name;
        ensure!(!data.train.is_empty(), "learner `{name}` has no example to train on");
        let input = data.train.input();
        ensure!(
            data.test.is_empty() || data.test.input() == input,
            "training and test examples differ in shape"
        );
        let device = device.open()?;
        let mut params = Params::new(&device);
        let model = (learner.model)(input, settings, &mut params).with_context(|| format!("learner `{name}`"))?;
        let built = params.finish()?;
        Ok(Self {
            model,
            layout: Arc::new(built.layout),
            vars: built.vars,
            trained: built.trained,
            inits: built.inits,
            device,
            data,
        })
    }

    /// Shape of the examples, and what is predicted.
    pub(super) fn input(&self) -> Input {
        self.data.train.input()
    }

    pub(super) fn model(&self) -> &dyn Model {
        self.model.as_ref()
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The examples that are trained on.
    pub(super) fn examples(&self) -> &Examples {
        &self.data.train
    }

    /// The trained tensors, in the order of the layout; changing them changes the model.
    pub(super) fn trained_vars(&self) -> &[Var] {
        &self.vars[..self.trained]
    }

    /// Replaces the trained weights and leaves the buffers. Shapes: `weights: [layout.trained().len()]`.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn load_trained(&self, weights: &[f32]) -> anyhow::Result<()> {
        for (var, tensor) in self.trained_vars().iter().zip(self.layout.tensors()) {
            let values = &weights[tensor.offset..tensor.offset + tensor.len];
            var.set(&Tensor::from_slice(values, tensor.shape.as_slice(), &self.device)?)?;
        }
        Ok(())
    }

    /// Places in the layout of the tensors that training changes in the plan's round.
    ///
    /// # Errors
    /// If moments are to be kept for tensors that are not trained in every round.
    pub(super) fn changing(&self, plan: &FitPlan) -> anyhow::Result<Vec<usize>> {
        let trains = |at: &usize, round| self.model.trains(&self.layout.tensors()[*at].name, round);
        let (here, next): (Vec<usize>, Vec<usize>) = (
            (0..self.trained).filter(|at| trains(at, plan.round)).collect(),
            (0..self.trained).filter(|at| trains(at, plan.round + 1)).collect(),
        );
        ensure!(
            here == next || plan.training.state == StatePolicy::Fresh,
            "`state = \"kept\"` needs a learner that trains the same tensors in every round; give `lora` the setting \
             update = \"both\" or \"b-only\""
        );
        Ok(here)
    }

    /// Loss of the examples at `positions`, and its gradient with respect to each of `vars`. `seed` determines what dropout
    /// draws.
    pub(super) fn gradients(
        &self,
        vars: &[Var],
        positions: &[u32],
        seed: u64,
        precision: Precision,
    ) -> anyhow::Result<Gradients> {
        let batch = ModelBatch::of(&self.data.train, positions, &self.device)?;
        let mut tape = Tape::training(vars, seed).with_products_in(match precision {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
        });
        let loss = batch.loss_of(&mut tape, self.model.as_ref())?;
        let grads = tape.backward(&loss, vars)?;
        Ok(Gradients {
            loss: f64::from(loss.to_scalar::<f32>()?),
            targets: batch.targets(),
            grads,
        })
    }
}

impl Learner for Trained {
    fn layout(&self) -> Arc<Layout> {
        self.layout.clone()
    }

    fn initial(&mut self, seed: u64, _: &Arc<Progress>) -> Option<Vec<f32>> {
        Some(init::fill(&self.layout, &self.inits, seed))
    }

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        ensure!(
            weights.len() == self.layout.len(),
            "{} weights for {}",
            weights.len(),
            self.layout.len()
        );
        for (var, tensor) in self.vars.iter().zip(self.layout.tensors()) {
            let values = &weights[tensor.offset..tensor.offset + tensor.len];
            var.set(&Tensor::from_slice(values, tensor.shape.as_slice(), &self.device)?)?;
        }
        Ok(())
    }

    fn fit(&mut self, plan: &FitPlan) -> anyhow::Result<Fit> {
        let places = self.changing(plan)?;
        let vars: Vec<Var> = places.iter().map(|&at| self.vars[at].clone()).collect();
        let tensors = self.layout.tensors();
        let names: Vec<&str> = places.iter().map(|&at| tensors[at].name.as_str()).collect();
        let precision = plan.training.precision;
        let gradients = |positions: &[u32], seed| self.gradients(&vars, positions, seed, precision);
        let fit = local_steps::train(plan, &names, &vars, &self.data.train, gradients);
        allocator::release_buffers();
        let mut fit = fit?;
        // Of tensors that this round leaves alone, the gradients count as zero.
        fit.squared_gradients = fit.squared_gradients.map(|own| {
            let (mut all, mut taken) = (vec![0.0; self.layout.trained().len()], 0);
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
            out.len() == self.layout.len(),
            "{} weights for {}",
            out.len(),
            self.layout.len()
        );
        for (var, tensor) in self.vars.iter().zip(self.layout.tensors()) {
            let values = var.as_tensor().flatten_all()?.to_vec1::<f32>()?;
            out[tensor.offset..tensor.offset + tensor.len].copy_from_slice(&values);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        self.evaluate_with(&EvaluatePlan::default())
    }

    fn evaluate_with(&mut self, plan: &EvaluatePlan) -> anyhow::Result<Option<Evaluation>> {
        examples::evaluate(self.model.as_ref(), &self.data.test, &self.device, &plan.progress)
    }
}

#[cfg(test)]
mod tests {
    use fl_proto::{Length, Schedule, Training};

    use super::super::find;
    use super::*;
    use crate::data::{Builtin, DataSource, Dataset, Features, Rng};
    use crate::learner::Progress;

    fn plan(training: Training) -> FitPlan {
        FitPlan::new(training, 1, 1, 5)
    }

    fn learner(name: &str) -> (Trained, Vec<f32>) {
        let data = match name {
            "har" => signals(),
            _ => DataSource::Builtin(Builtin {
                train: 200,
                test: 50,
                ..Builtin::default()
            })
            .load()
            .unwrap(),
        };
        let mut learner = Trained::new(find(name).unwrap(), &Table::new(), DeviceChoice::Cpu, data).unwrap();
        let (layout, weights) = find(name).unwrap().initial_weights(1).unwrap();
        assert_eq!(*layout, *learner.layout());
        learner.load(&weights).unwrap();
        (learner, weights)
    }

    /// Twelve classes, which differ in the frequency of a wave.
    fn signals() -> ClientData {
        let mut rng = Rng::new(1);
        let mut values = Vec::new();
        for i in 0..240 {
            for _ in 0..6 {
                let phase = rng.unit() * 6.0;
                values.extend((0..128).map(|t| (f64::from(t) * 0.1 * f64::from(i % 12 + 1) + phase).sin() as f32));
            }
        }
        let labels = (0..240).map(|i| (i % 12) as u8).collect();
        let input = find("har").unwrap().input;
        let all = Examples::all(Arc::new(Dataset::new(Features::Floats(values), labels, input).unwrap()));
        ClientData {
            train: all.clone(),
            test: all.take(50),
        }
    }

    fn trained(name: &str, training: Training) -> (Fit, Vec<f32>) {
        let (mut learner, mut weights) = learner(name);
        let fit = learner.fit(&plan(training)).unwrap();
        learner.weights(&mut weights).unwrap();
        (fit, weights)
    }

    fn distance(a: &[f32], b: &[f32]) -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum::<f64>()
            .sqrt()
    }

    #[test]
    fn every_model_learns() {
        for name in ["mlp", "cnn", "lenet", "har"] {
            let (mut learner, _) = learner(name);
            let before = learner.evaluate().unwrap().unwrap();
            let first = learner
                .fit(&plan(Training {
                    momentum: 0.9,
                    ..Training::default()
                }))
                .unwrap();
            let longer = Training {
                momentum: 0.9,
                length: Length::Epochs(6),
                ..Training::default()
            };
            let last = learner.fit(&plan(longer)).unwrap();
            let after = learner.evaluate().unwrap().unwrap();
            assert!(
                last.loss < first.loss && after.loss < before.loss,
                "{name}: {first:?} {last:?} {before:?} {after:?}"
            );
            assert!(
                after.correct > before.correct && after.examples == 50,
                "{name}: {before:?} {after:?}"
            );
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bits_on_any_thread() {
        for name in ["lenet", "mlp"] {
            let here = trained(name, Training::default());
            let there = std::thread::spawn(move || trained(name, Training::default()))
                .join()
                .unwrap();
            assert_eq!(here, there);
        }
    }

    #[test]
    fn weights_come_back_as_they_were_loaded() {
        for name in ["mlp", "har"] {
            let (learner, weights) = learner(name);
            let mut out = vec![0.0; weights.len()];
            learner.weights(&mut out).unwrap();
            assert_eq!(out, weights);
            assert!(learner.weights(&mut out[1..]).is_err());
        }
    }

    #[test]
    fn a_proximal_term_and_a_clip_norm_keep_the_model_near_its_start() {
        let start = find("mlp").unwrap().initial_weights(1).unwrap().1;
        let far = Training {
            learning_rate: 0.2,
            length: Length::Epochs(3),
            ..Training::default()
        };
        let free = distance(&trained("mlp", far).1, &start);
        let pulled = distance(&trained("mlp", Training { proximal: 2.0, ..far }).1, &start);
        assert!(pulled < 0.7 * free, "{pulled} {free}");
        let one = Training {
            length: Length::Steps(1),
            clip_norm: Some(0.01),
            learning_rate: 1.0,
            ..Training::default()
        };
        let moved = distance(&trained("mlp", one).1, &start);
        assert!((moved - 0.01).abs() < 1e-4, "{moved}");
    }

    #[test]
    fn steps_and_epochs_are_counted_and_the_schedule_sets_the_rate() {
        let (mut learner, start) = learner("mlp");
        let steps = FitPlan {
            progress: Arc::new(Progress::default()),
            ..plan(Training {
                length: Length::Steps(9),
                ..Training::default()
            })
        };
        learner.fit(&steps).unwrap();
        assert_eq!(steps.progress.read(), (9, 9));
        let epochs = plan(Training {
            length: Length::Epochs(2),
            ..Training::default()
        });
        let fit = learner.fit(&epochs).unwrap();
        assert_eq!((epochs.progress.read(), fit.examples), ((14, 14), 200));
        // The last round of a step schedule that takes the rate to nearly nothing.
        learner.load(&start).unwrap();
        let schedule = Schedule::Step { every: 1, factor: 1e-6 };
        let late = FitPlan {
            round: 5,
            rounds: 5,
            ..plan(Training {
                schedule,
                ..Training::default()
            })
        };
        learner.fit(&late).unwrap();
        let mut out = start.clone();
        learner.weights(&mut out).unwrap();
        assert!(distance(&out, &start) < 1e-6);
    }

    #[test]
    fn training_stops_when_told_and_says_when_it_diverges() {
        let (mut learner, _) = learner("mlp");
        let stopped = plan(Training::default());
        stopped.progress.stop();
        assert!(
            learner
                .fit(&stopped)
                .unwrap_err()
                .to_string()
                .contains("stopped after 0")
        );
        let wild = plan(Training {
            learning_rate: 1e30,
            ..Training::default()
        });
        assert!(
            learner
                .fit(&wild)
                .unwrap_err()
                .to_string()
                .contains("lower learning rate")
        );
    }
}
