//! Learners give the same results on a GPU as on the CPU, up to rounding. Requires the feature `cuda`; run by `cargo
//! gpu` on a machine with a GPU.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)]

use fl_client::data::{Builtin, DataSource};
use fl_client::learners::{DeviceChoice, find};
use fl_client::{Evaluation, Fit, FitPlan};
use fl_proto::{Length, OptimizerSpec, Training};

/// Every setting that changes a step.
fn training(optimizer: OptimizerSpec) -> Training {
    Training {
        length: Length::Steps(12),
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

/// One round on `device`: the training result, the evaluation, and the change of the weights.
fn round(name: &str, optimizer: OptimizerSpec, device: DeviceChoice) -> (Fit, Evaluation, Vec<f32>) {
    let data = DataSource::Builtin(Builtin {
        train: 200,
        test: 200,
        ..Builtin::default()
    });
    let mut learner = find(name).unwrap().build(device, data.load().unwrap()).unwrap();
    let before = learner.initial(1, &Default::default()).unwrap();
    learner.load(&before).unwrap();
    let plan = FitPlan::new(training(optimizer), 1, 1, 5);
    let fit = learner.fit(&plan).unwrap();
    let mut delta = vec![0.0; before.len()];
    learner.weights(&mut delta).unwrap();
    delta
        .iter_mut()
        .zip(&before)
        .for_each(|(after, before)| *after -= before);
    (fit, learner.evaluate().unwrap().unwrap(), delta)
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn a_gpu_trains_as_the_cpu_does() {
    for name in ["mlp", "lenet", "cnn"] {
        for make in OptimizerSpec::ALL {
            let on = |device| round(name, make(), device);
            let (cpu, gpu) = (on(DeviceChoice::Cpu), on(DeviceChoice::Cuda(0)));
            let what = format!("{name} by {}", make().name());
            assert_eq!(cpu.0.examples, gpu.0.examples);
            assert!(
                (cpu.0.loss - gpu.0.loss).abs() < 1e-2 * cpu.0.loss,
                "{what}: {:?}",
                (cpu.0, gpu.0)
            );
            assert!((cpu.1.loss - gpu.1.loss).abs() < 1e-2 * cpu.1.loss, "{what}");
            let apart = norm(cpu.2.iter().zip(&gpu.2).map(|(cpu, gpu)| cpu - gpu)) / norm(cpu.2.iter().copied());
            // The first steps of AdamW and Muon are as large for a tiny gradient as for a large one.
            let most = if make() == OptimizerSpec::Sgd { 1e-2 } else { 5e-2 };
            assert!(apart < most, "{what}: the changes differ by {apart}");
        }
    }
}
