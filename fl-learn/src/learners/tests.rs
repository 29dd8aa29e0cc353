//! Every learner trains as the same model in PyTorch. `tests/fixtures/pytorch.py` makes the vectors.

use std::collections::BTreeMap;

use candle_core::{Device, Tensor, Var};
use fl_proto::Training;
use serde::Deserialize;

use super::LearnerChoice;
use super::opened::Source;
use super::params::Params;
use crate::data::Input;
use crate::ops::{LocalOptimizer, Tape, cross_entropy};

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    learner: String,
    shape: Vec<usize>,
    classes: usize,
    learning_rate: f32,
    momentum: f32,
    weight_decay: f32,
    losses: Vec<f64>,
    last: BTreeMap<String, Last>,
}

/// A tensor after the last step: its norm, and some of its values.
#[derive(Deserialize)]
struct Last {
    norm: f64,
    some: Vec<f64>,
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Numbers in [-scale, scale), each from its position, as the script makes them.
fn noise(seed: u64, count: usize, scale: f64) -> Vec<f32> {
    let bits = |i: usize| mix(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(i as u64)) >> 40;
    (0..count)
        .map(|i| ((bits(i) as f64 / 8_388_608.0 - 1.0) * scale) as f32)
        .collect()
}

/// The model's first weights, as the script makes them.
fn fill(vars: &[Var], names: &[String]) {
    for (at, (var, name)) in vars.iter().zip(names).enumerate() {
        let dims = var.dims().to_vec();
        let is_scale = dims.len() == 1 && name.ends_with("weight");
        let fan = if dims.len() > 1 { dims[1..].iter().product() } else { 16 };
        let scale = if is_scale { 0.1 } else { (fan as f64).powf(-0.5) };
        let mut values = noise(at as u64 + 1, var.elem_count(), scale);
        if is_scale {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        var.set(&Tensor::from_vec(values, dims, &Device::Cpu).unwrap()).unwrap();
    }
}

/// Inputs and labels of one of the four batches.
fn batch(case: &Case, at: u64) -> (Tensor, Vec<u32>) {
    let values = noise(1000 + at, case.shape.iter().product(), 1.0);
    let last = case.classes as u32 - 1;
    let (x, rows) = match case.shape[..] {
        [texts, tokens] => {
            let ids: Vec<u32> = values.iter().map(|v| ((v * 10.0 + 10.0) as u32).min(last)).collect();
            (
                Tensor::from_vec(ids, (texts, tokens), &Device::Cpu).unwrap(),
                texts * tokens,
            )
        }
        _ => {
            let x = Tensor::from_vec(values, case.shape.as_slice(), &Device::Cpu).unwrap();
            (x, case.shape[0])
        }
    };
    let half = case.classes as f32 / 2.0;
    let labels = noise(2000 + at, rows, 1.0);
    (
        x,
        labels.iter().map(|v| (((v + 1.0) * half) as u32).min(last)).collect(),
    )
}

#[test]
fn every_learner_trains_as_in_pytorch() {
    let text = include_str!("../../tests/fixtures/pytorch.json");
    let vectors: Vectors = serde_json::from_str(text).unwrap();
    for case in &vectors.cases {
        let choice: LearnerChoice = case.learner.parse().unwrap();
        let input = match case.shape[..] {
            [_, tokens] => Input::of_text(tokens, case.classes),
            _ => Input::of_classes([case.shape[1], case.shape[2], case.shape[3]], case.classes),
        };
        let params = Params::new(&Device::Cpu);
        let Source::Kept(model) = Source::new(choice.info(), choice.settings(), input, &params).unwrap() else {
            panic!("{}", case.learner)
        };
        let built = params.finish().unwrap();
        let names: Vec<String> = built
            .layout
            .tensors()
            .iter()
            .map(|tensor| tensor.name.clone())
            .collect();
        let weights = super::init::fill(&built.layout, &built.inits, 1);
        built.load(&weights).unwrap();
        let trained = &built.vars[..built.trained];
        fill(trained, &names);
        let training = Training {
            momentum: case.momentum,
            weight_decay: case.weight_decay,
            ..Training::default()
        };
        let of: Vec<&str> = names[..trained.len()].iter().map(String::as_str).collect();
        let mut sgd = LocalOptimizer::new(&training, &of, trained).unwrap();
        for (step, want) in case.losses.iter().enumerate() {
            let (x, labels) = batch(case, step as u64 % 4);
            let mut tape = Tape::training(trained, 0);
            let logits = model.forward(&mut tape, &x).unwrap();
            let loss = cross_entropy(&mut tape, &logits, &labels).unwrap();
            let have = f64::from(loss.to_scalar::<f32>().unwrap());
            let name = &case.name;
            assert!(
                (have - want).abs() <= 1e-4 * want.max(0.01),
                "{name}, step {step}: loss {have}, expected {want}"
            );
            let grads = tape.backward(&loss, trained).unwrap();
            sgd.step(trained, &grads, case.learning_rate).unwrap();
        }
        assert_eq!(case.last.len(), names.len(), "{}: {names:?}", case.name);
        for (var, name) in built.vars.iter().zip(&names) {
            let last = &case.last[name];
            let values = var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let norm = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            let what = format!("{}: {name}", case.name);
            assert!(
                (norm - last.norm).abs() <= 1e-3 * last.norm,
                "{what}: norm {norm}, expected {}",
                last.norm
            );
            let typical = last.norm / (values.len() as f64).sqrt();
            for (have, want) in values.iter().step_by((values.len() / 8).max(1)).zip(&last.some) {
                let apart = (f64::from(*have) - want).abs();
                assert!(
                    apart <= 1e-3 * (typical + want.abs()),
                    "{what}: {have}, expected {want}"
                );
            }
        }
    }
}
