use std::io::Write;
use std::sync::{Arc, Mutex};

use candle_core::{DType, Device};
use fl_proto::OptimizerSpec;

use super::super::{LearnerChoice, LearnerInfo, find};
use super::*;
use crate::data::{ClientData, Dataset, Features};
use fl_client::{DeviceChoice, Learner, Progress};

/// Noise around a value of each class.
fn data(info: &LearnerInfo, examples: usize) -> ClientData {
    let mut rng = Rng::new(7);
    let labels: Vec<u8> = (0..examples).map(|i| (i % info.input.unwrap().classes) as u8).collect();
    let values = labels
        .iter()
        .flat_map(|label| vec![f64::from(*label) / 10.0; info.input.unwrap().len()]);
    let values = values.map(|value| (value + 0.3 * rng.normal()) as f32).collect();
    let all = Dataset::new(Features::Floats(values), labels, info.input.unwrap()).unwrap();
    let train = Examples::all(Arc::new(all));
    ClientData {
        test: train.clone().take(1),
        train,
    }
}

fn learner(info: &LearnerInfo, examples: usize) -> (Box<dyn Learner>, Vec<f32>) {
    let choice: LearnerChoice = info.name.parse().unwrap();
    let mut learner = choice.build(DeviceChoice::Cpu, data(info, examples)).unwrap();
    let weights = learner.initial(1, &Arc::new(Progress::default())).unwrap();
    learner.load(&weights).unwrap();
    (learner, weights)
}

fn trained(info: &LearnerInfo, examples: usize, plan: &FitPlan) -> (Fit, Vec<f32>) {
    let (mut learner, mut weights) = learner(info, examples);
    let fit = learner.fit(plan).unwrap();
    learner.weights(&mut weights).unwrap();
    (fit, weights)
}

fn plan(training: Training) -> FitPlan {
    FitPlan::new(training, 1, 2, 5)
}

fn of(optimizer: OptimizerSpec, steps: u32) -> Training {
    Training {
        length: Length::Steps(steps),
        learning_rate: optimizer.default_learning_rate(),
        optimizer,
        ..Training::default()
    }
}

#[test]
fn every_optimizer_lowers_the_loss() {
    let info = find("mlp").unwrap();
    for make in OptimizerSpec::ALL {
        let training = of(make(), 8);
        let (mut learner, _) = learner(info, 64);
        let first = learner.fit(&plan(training)).unwrap();
        let last = learner.fit(&plan(training)).unwrap();
        assert!(
            last.loss < 0.97 * first.loss,
            "{}: {first:?} {last:?}",
            training.optimizer.name()
        );
    }
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

#[test]
fn micro_batches_give_the_gradient_of_the_whole_batch() {
    for info in [find("mlp").unwrap(), find("lenet").unwrap()] {
        let whole = Training {
            length: Length::Epochs(1),
            batch_size: 16,
            ..Training::default()
        };
        let (fit, weights) = trained(info, 40, &plan(whole));
        let before = learner(info, 40).1;
        // 5 leaves a piece of 1, and the last batch of 8 a piece of 3.
        for micro in [1, 5, 16] {
            let pieces = Training {
                micro_batch: Some(micro),
                ..whole
            };
            let (other, apart) = trained(info, 40, &plan(pieces));
            let (far, moved) = (distance(&weights, &apart), distance(&weights, &before));
            assert!(
                far <= 1e-4 * moved,
                "{} in pieces of {micro}: {far} of {moved}",
                info.name
            );
            assert!((fit.loss - other.loss).abs() < 1e-5 * fit.loss);
            assert!(micro < 16 || weights == apart, "one piece is the batch itself");
        }
    }
}

/// Lines logged on this thread.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Trains one number towards the mean of the positions, with noise from the seeds, on a device with memory for `room`
/// examples. Returns loss, trained number and log.
fn on_a_small_device(room: usize, micro_batch: Option<u32>) -> (anyhow::Result<f64>, f32, String) {
    let training = Training {
        batch_size: 16,
        micro_batch,
        length: Length::Epochs(2),
        ..Training::default()
    };
    let var = Var::zeros(1, DType::F32, &Device::Cpu).unwrap();
    let vars = [var.clone()];
    let gradients = |positions: &[u32], seed: u64| {
        if positions.len() > room {
            let text = "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")";
            return Err(candle_core::Error::Cuda(text.into()).into());
        }
        let w = var.as_tensor().to_vec1::<f32>()?[0];
        let mean = positions.iter().sum::<u32>() as f32 / positions.len() as f32;
        let gradient = w - mean + Rng::new(seed).unit() as f32;
        Ok(Gradients {
            loss: f64::from(gradient),
            targets: positions.len(),
            grads: vec![Tensor::new(&[gradient], &Device::Cpu)?],
        })
    };
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let examples = data(find("mlp").unwrap(), 40).train;
    let fit = tracing::subscriber::with_default(subscriber, || {
        train(&plan(training), &["w"], &vars, &examples, gradients)
    });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    (
        fit.map(|fit| fit.loss),
        var.as_tensor().to_vec1::<f32>().unwrap()[0],
        log,
    )
}

#[test]
fn a_device_out_of_memory_trains_as_with_smaller_micro_batches() {
    // 16 and 8 do not fit; the last batch of an epoch has 8 examples.
    let (loss, weight, log) = on_a_small_device(5, None);
    let (same, other, silent) = on_a_small_device(16, Some(4));
    assert_eq!((loss.unwrap(), weight), (same.unwrap(), other));
    assert_eq!(
        log.matches("out of memory; computing in smaller pieces").count(),
        2,
        "{log}"
    );
    assert!(
        log.contains("failed=16 examples=8") && log.contains("failed=8 examples=4"),
        "{log}"
    );
    assert!(!silent.contains("out of memory"), "{silent}");
    let (none, untouched, _) = on_a_small_device(0, None);
    let text = none.unwrap_err().to_string();
    assert!(text.contains("micro_batch") && text.contains("training"), "{text}");
    assert_eq!(untouched, 0.0);
}

#[test]
fn squared_gradients_are_those_of_the_steps() {
    let info = find("mlp").unwrap();
    // One step of plain SGD at rate 1 moves by the gradient.
    let one = Training {
        learning_rate: 1.0,
        ..of(OptimizerSpec::Sgd, 1)
    };
    let asked = FitPlan {
        squared_gradients: true,
        ..plan(one)
    };
    let (fit, after) = trained(info, 8, &asked);
    let before = learner(info, 8).1;
    let squares = fit.squared_gradients.unwrap();
    assert_eq!(squares.len(), before.len());
    for ((square, before), after) in squares.iter().zip(&before).zip(&after) {
        let gradient = before - after;
        assert!(
            (square - gradient * gradient).abs() <= 1e-6 + 1e-3 * square,
            "{square} {gradient}"
        );
    }
    assert_eq!(trained(info, 8, &plan(one)).0.squared_gradients, None);
}

#[test]
fn warm_up_and_decay_reach_the_steps() {
    let info = find("mlp").unwrap();
    let before = learner(info, 8).1;
    let moved = |training: Training| distance(&trained(info, 8, &plan(training)).1, &before);
    let one = of(OptimizerSpec::Sgd, 1);
    let whole = moved(one);
    let long = Training {
        warmup: 100,
        span: fl_proto::Span::Run,
        ..one
    };
    let part = moved(long) / whole;
    assert!((part - 0.01).abs() < 1e-3, "{part}");
}

#[test]
fn kept_moments_continue_and_the_same_ones_give_the_same_bits() {
    let info = find("mlp").unwrap();
    for make in OptimizerSpec::ALL {
        let training = Training {
            state: StatePolicy::Kept,
            momentum: if make() == OptimizerSpec::Sgd { 0.9 } else { 0.0 },
            ..of(make(), 3)
        };
        let first = trained(info, 16, &plan(training)).0;
        let kept = first.kept.unwrap();
        assert_eq!((kept.optimizer.as_str(), kept.steps), (training.optimizer.name(), 3));
        let next = FitPlan {
            kept: Some(Arc::new(kept)),
            ..plan(training)
        };
        let (again, fresh) = (trained(info, 16, &next), trained(info, 16, &plan(training)));
        assert_eq!(again, trained(info, 16, &next));
        assert_eq!(again.0.kept.as_ref().unwrap().steps, 6);
        assert_ne!(again.1, fresh.1);
        // A run that does not keep them ignores them.
        let forgetful = Training {
            state: StatePolicy::Fresh,
            ..training
        };
        let ignored = FitPlan {
            training: forgetful,
            ..next
        };
        assert_eq!(trained(info, 16, &ignored), trained(info, 16, &plan(forgetful)));
    }
}
