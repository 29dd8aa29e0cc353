//! Every learner gives the same results on a GPU as on the CPU, up to rounding. `cargo gpu` runs the comparison on a
//! machine with a GPU; without the feature `cuda` the tests compare the CPU with itself, which tests the comparison.
#![allow(clippy::unwrap_used)]

use std::fmt;
use std::sync::Arc;

use fl_client::{DeviceChoice, Evaluation, Fit, FitPlan};
use fl_learn::data::{Builtin, ClientData, DataSource, Dataset, Examples, Features, Rng, Tokens};
use fl_learn::learners::{LearnerChoice, find};
use fl_proto::{Length, OptimizerSpec, Precision, Training};

const VOCABULARY: u32 = 24;
/// Tokens of a text.
const TOKENS: u32 = 12;

/// Every learner, with every layer that it can have. The dropouts of the two devices draw the same.
fn learners() -> Vec<LearnerChoice> {
    // The program may have been built on another machine.
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let folder = format!("{root}/tests/fixtures/hugging_face");
    let lora = |name: &str| format!("{{ name = 'lora', model = '{folder}/{name}', rank = 2, dropout = 0.1 }}");
    [
        "mlp",
        "lenet",
        "cnn",
        "har",
        "resnet8",
        "{ name = 'resnet8', norm = 'batch' }",
        "{ name = 'resnet8', stem = 'large' }",
        "{ name = 'lstm', layers = 2, hidden = 24, dropout = 0.1 }",
        "{ name = 'lstm', layers = 1, hidden = 24, tied = true }",
        "{ name = 'transformer', layers = 2, width = 32, heads = 4, dropout = 0.1 }",
        "{ name = 'transformer', style = 'llama', layers = 2, width = 32, heads = 4, key_heads = 2 }",
        &lora("gpt2"),
        &lora("llama"),
    ]
    .iter()
    .map(|text| text.parse().unwrap())
    .collect()
}

fn same(examples: Examples) -> ClientData {
    ClientData {
        train: examples.clone(),
        test: examples.take(30),
    }
}

/// Data of a shape that suits the learner.
fn data(learner: &LearnerChoice) -> ClientData {
    let mut rng = Rng::new(4);
    match &*learner.info().name {
        "lstm" | "transformer" | "lora" => {
            let mut tokens = Tokens::new(VOCABULARY as usize);
            (0..60 * TOKENS).for_each(|_| tokens.push((rng.bits() % u64::from(VOCABULARY)) as u32).unwrap());
            let pieces = (0..59).map(|at| at * TOKENS + 1..(at + 1) * TOKENS + 1).collect();
            same(Examples::all(Arc::new(
                Dataset::of_text(Features::Text { tokens, pieces }, TOKENS as usize).unwrap(),
            )))
        }
        "har" => {
            let input = find("har").unwrap().input.unwrap();
            let labels: Vec<u8> = (0..60).map(|at| (at % input.classes) as u8).collect();
            let values = (0..60 * input.len()).map(|_| rng.normal() as f32).collect();
            same(Examples::all(Arc::new(
                Dataset::new(Features::Floats(values), labels, input).unwrap(),
            )))
        }
        _ => DataSource::new(
            "builtin",
            &Builtin {
                train: 60,
                test: 30,
                ..Builtin::default()
            },
        )
        .unwrap()
        .load()
        .unwrap(),
    }
}

/// Every setting that changes a step.
fn training(optimizer: OptimizerSpec, steps: u32) -> Training {
    Training {
        length: Length::Steps(steps),
        batch_size: 16,
        micro_batch: Some(12),
        learning_rate: optimizer.default_learning_rate(),
        momentum: if optimizer == OptimizerSpec::Sgd { 0.9 } else { 0.0 },
        optimizer,
        weight_decay: 1e-3,
        clip_norm: Some(1.0),
        proximal: 0.01,
        ..Training::default()
    }
}

/// A round: the training result, the evaluation, and the change of the weights.
struct Round {
    fit: Fit,
    evaluation: Evaluation,
    delta: Vec<f32>,
}

impl Round {
    fn of(learner: &LearnerChoice, training: Training, seed: u64, device: DeviceChoice) -> Self {
        let mut learner = learner.build(device, data(learner)).unwrap();
        let before = learner.initial(1, &Arc::default()).unwrap();
        learner.load(&before).unwrap();
        let fit = learner.fit(&FitPlan::new(training, 1, 1, seed)).unwrap();
        let mut delta = vec![0.0; before.len()];
        learner.weights(&mut delta).unwrap();
        let changes = delta.iter_mut().zip(&before);
        changes.for_each(|(after, before)| *after -= before);
        Self {
            fit,
            evaluation: learner.evaluate().unwrap().unwrap(),
            delta,
        }
    }

    /// How far apart two rounds are; NaN if they did not train with as many examples.
    fn apart(&self, other: &Self) -> Apart {
        let relative = |a: f64, b: f64| (a - b).abs() / a.abs();
        let differences = self.delta.iter().zip(&other.delta).map(|(a, b)| a - b);
        Apart {
            training: match self.fit.examples == other.fit.examples {
                true => relative(self.fit.loss, other.fit.loss),
                false => f64::NAN,
            },
            evaluation: relative(self.evaluation.loss, other.evaluation.loss),
            change: norm(differences) / norm(self.delta.iter().copied()),
        }
    }
}

/// Relative differences of two rounds.
struct Apart {
    /// Of the loss of training.
    training: f64,
    /// Of the loss of the evaluation.
    evaluation: f64,
    /// Of the changes of the weights, by their norms.
    change: f64,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            training,
            evaluation,
            change,
        } = self;
        write!(
            f,
            "losses {training:.1e} and {evaluation:.1e}, change of the weights {change:.1e}"
        )
    }
}

impl Apart {
    /// Whether they are within the tolerance that docs/benchmarks.md states.
    fn is_close(&self, training: &Training) -> bool {
        // The first steps of AdamW and Muon are as large for a tiny gradient as for a large one.
        let (loss, change) = match (training.precision, training.optimizer) {
            (Precision::Bf16, _) => (1e-2, 0.4),
            // Three bits more than bfloat16.
            (Precision::Tf32, _) => (2e-3, 0.1),
            (Precision::F32, OptimizerSpec::Sgd) => (1e-3, 2e-3),
            (Precision::F32, _) => (1e-3, 2e-2),
        };
        // False of NaN.
        self.training <= loss && self.evaluation <= loss && self.change <= change
    }
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

/// Compares two devices, for every learner and optimizer. Prints every difference.
fn compare(steps: u32, precision: Precision, one: DeviceChoice, other: DeviceChoice) {
    let mut failures = Vec::new();
    for learner in learners() {
        for make in OptimizerSpec::ALL {
            let training = Training {
                precision,
                ..training(make(), steps)
            };
            let on = |device| Round::of(&learner, training, 5, device);
            let apart = on(one).apart(&on(other));
            let line = format!("{learner} by {}, {precision:?}: {apart}", make().name());
            println!("{line}");
            if !apart.is_close(&training) {
                failures.push(line);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_trains_as_the_cpu_does() {
    compare(12, Precision::F32, DeviceChoice::Cpu, DeviceChoice::Cuda(0));
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_with_products_in_bfloat16_trains_nearly_as_the_cpu_does() {
    compare(12, Precision::Bf16, DeviceChoice::Cpu, DeviceChoice::Cuda(0));
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_with_products_in_tf32_trains_nearly_as_the_cpu_does() {
    compare(12, Precision::Tf32, DeviceChoice::Cpu, DeviceChoice::Cuda(0));
}

#[cfg(not(feature = "cuda"))]
#[test]
fn the_cpu_trains_as_itself_and_in_float32() {
    compare(1, Precision::Bf16, DeviceChoice::Cpu, DeviceChoice::Cpu);
}

#[test]
fn other_batches_are_a_difference() {
    let learner: LearnerChoice = "mlp".parse().unwrap();
    let round = |seed, optimizer| Round::of(&learner, training(optimizer, 2), seed, DeviceChoice::Cpu);
    for make in OptimizerSpec::ALL {
        let apart = round(5, make()).apart(&round(6, make()));
        assert!(!apart.is_close(&training(make(), 2)), "{}: {apart}", make().name());
    }
}
