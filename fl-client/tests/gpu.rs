//! Learners give the same results on a GPU as on the CPU, up to rounding. Requires the feature `cuda`; run by `cargo
//! gpu` on a machine with a GPU.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)]

use fl_client::data::{Builtin, DataSource};
use fl_client::learners::{DeviceChoice, find};
use fl_client::{Evaluation, Fit, FitPlan};
use fl_proto::{Length, Schedule, Training};

/// All options of an SGD step: momentum, decay, clipping, the proximal term.
const TRAINING: Training = Training {
    length: Length::Steps(12),
    batch_size: 16,
    learning_rate: 0.05,
    schedule: Schedule::Constant,
    momentum: 0.9,
    weight_decay: 1e-3,
    clip_norm: Some(1.0),
    proximal: 0.01,
};

/// One round on `device`: the training result, the evaluation, and the change of the weights.
fn round(name: &str, device: DeviceChoice) -> (Fit, Evaluation, Vec<f32>) {
    let data = DataSource::Builtin(Builtin {
        train: 200,
        test: 200,
        ..Builtin::default()
    });
    let mut learner = find(name).unwrap().build(device, data.load().unwrap()).unwrap();
    let before = learner.initial(1).unwrap();
    learner.load(&before).unwrap();
    let plan = FitPlan::new(TRAINING, 1, 1, 5);
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
        let (cpu, gpu) = (round(name, DeviceChoice::Cpu), round(name, DeviceChoice::Cuda(0)));
        assert_eq!(cpu.0.examples, gpu.0.examples);
        assert!(
            (cpu.0.loss - gpu.0.loss).abs() < 1e-2 * cpu.0.loss,
            "{name}: {:?}",
            (cpu.0, gpu.0)
        );
        assert!((cpu.1.loss - gpu.1.loss).abs() < 1e-2 * cpu.1.loss, "{name}");
        let apart = norm(cpu.2.iter().zip(&gpu.2).map(|(cpu, gpu)| cpu - gpu)) / norm(cpu.2.iter().copied());
        assert!(apart < 1e-2, "{name}: the changes differ by {apart}");
    }
}
