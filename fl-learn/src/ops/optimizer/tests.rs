use std::collections::BTreeMap;

use candle_core::Device;
use fl_proto::{AdamW, Muon};

use super::*;
use crate::ops::on_gpu;

/// What `tests/fixtures/optimizers.py` writes.
#[derive(serde::Deserialize)]
struct Vectors {
    rates: Vec<f32>,
    shapes: BTreeMap<String, Vec<usize>>,
    first: BTreeMap<String, Vec<f32>>,
    grads: Vec<BTreeMap<String, Vec<f32>>>,
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    optimizer: String,
    settings: BTreeMap<String, serde_json::Value>,
    after: BTreeMap<String, Vec<f32>>,
}

impl Case {
    fn training(&self) -> Training {
        let number = |key: &str, default: f32| {
            let value = self.settings.get(key).and_then(serde_json::Value::as_f64);
            value.map_or(default, |value| value as f32)
        };
        let usual = AdamW::default();
        let adamw = AdamW {
            beta1: number("beta1", usual.beta1),
            beta2: number("beta2", usual.beta2),
            eps: number("eps", usual.eps),
        };
        let (optimizer, momentum) = match self.optimizer.as_str() {
            "sgd" => (OptimizerSpec::Sgd, number("momentum", 0.0)),
            "adamw" => (OptimizerSpec::AdamW(adamw), 0.0),
            _ => {
                let nesterov = self.settings.get("nesterov").is_none_or(|value| value == true);
                let momentum = number("momentum", 0.95);
                let muon = Muon {
                    momentum,
                    nesterov,
                    adamw,
                };
                (OptimizerSpec::Muon(muon), 0.0)
            }
        };
        Training {
            optimizer,
            momentum,
            weight_decay: number("weight_decay", 0.0),
            ..Training::default()
        }
    }
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../tests/fixtures/optimizers.json")).unwrap()
}

impl Vectors {
    fn tensors(&self, values: &BTreeMap<String, Vec<f32>>) -> Vec<Tensor> {
        let tensor = |(name, shape): (&String, &Vec<usize>)| {
            Tensor::from_slice(&values[name], shape.as_slice(), &Device::Cpu).unwrap()
        };
        self.shapes.iter().map(tensor).collect()
    }

    fn start(&self, training: &Training) -> (Vec<Var>, LocalOptimizer) {
        let vars: Vec<Var> = self
            .tensors(&self.first)
            .iter()
            .map(|t| Var::from_tensor(t).unwrap())
            .collect();
        let names: Vec<&str> = self.shapes.keys().map(String::as_str).collect();
        let optimizer = LocalOptimizer::new(training, &names, &vars).unwrap();
        (vars, optimizer)
    }

    fn steps(&self, optimizer: &mut LocalOptimizer, vars: &[Var], steps: std::ops::Range<usize>) {
        for step in steps {
            optimizer
                .step(vars, &self.tensors(&self.grads[step]), self.rates[step])
                .unwrap();
        }
    }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn every_optimizer_takes_pytorchs_steps() {
    pytorchs_steps();
    on_gpu(pytorchs_steps);
}

fn pytorchs_steps() {
    let vectors = vectors();
    assert_eq!(vectors.cases.len(), 7);
    for case in &vectors.cases {
        let (vars, mut optimizer) = vectors.start(&case.training());
        vectors.steps(&mut optimizer, &vars, 0..vectors.rates.len());
        for (name, var) in vectors.shapes.keys().zip(&vars) {
            let (have, first) = (values(var.as_tensor()), &vectors.first[name]);
            for ((have, want), first) in have.iter().zip(&case.after[name]).zip(first) {
                assert!(
                    (have - want).abs() <= 1e-6 + 2e-5 * (want - first).abs(),
                    "{} {:?} {name}: {have}, expected {want}, from {first}",
                    case.optimizer,
                    case.settings
                );
            }
        }
    }
}

#[test]
fn every_tensor_changes_in_one_step() {
    let vectors = vectors();
    for make in OptimizerSpec::ALL {
        let training = Training {
            optimizer: make(),
            ..Training::default()
        };
        let (vars, mut optimizer) = vectors.start(&training);
        vectors.steps(&mut optimizer, &vars, 0..1);
        for (name, var) in vectors.shapes.keys().zip(&vars) {
            let moved = values(var.as_tensor())
                .iter()
                .zip(&vectors.first[name])
                .filter(|(a, b)| a != b)
                .count();
            assert!(moved > 0, "{} {name}", training.optimizer.name());
        }
    }
}

#[test]
fn restored_moments_continue_as_if_the_round_had_not_ended() {
    let vectors = vectors();
    for case in &vectors.cases {
        let training = case.training();
        let (whole, mut optimizer) = vectors.start(&training);
        vectors.steps(&mut optimizer, &whole, 0..6);
        let (parts, mut optimizer) = vectors.start(&training);
        vectors.steps(&mut optimizer, &parts, 0..4);
        let state = optimizer.state().unwrap();
        let params = whole.iter().map(|var| var.elem_count()).sum::<usize>();
        assert!(state.values.len() <= OptimizerState::PER_VALUE * params && state.steps == 4);
        let names: Vec<&str> = vectors.shapes.keys().map(String::as_str).collect();
        let mut optimizer = LocalOptimizer::new(&training, &names, &parts).unwrap();
        optimizer.restore(&state).unwrap();
        vectors.steps(&mut optimizer, &parts, 4..6);
        let bits = |vars: &[Var]| vars.iter().map(|var| values(var.as_tensor())).collect::<Vec<_>>();
        assert_eq!(bits(&whole), bits(&parts), "{}", case.optimizer);

        let other = OptimizerState {
            optimizer: "lion".to_owned(),
            ..state.clone()
        };
        assert!(optimizer.restore(&other).unwrap_err().to_string().contains("lion"));
        let longer = OptimizerState {
            values: [state.values.as_slice(), &[0.0]].concat(),
            ..state
        };
        assert!(optimizer.restore(&longer).unwrap_err().to_string().contains("moments"));
    }
}

fn var(values: &[f32]) -> Var {
    Var::from_tensor(&Tensor::new(values, &Device::Cpu).unwrap()).unwrap()
}

fn optimizer(training: Training, vars: &[Var]) -> LocalOptimizer {
    LocalOptimizer::new(&training, &["a.weight", "b.bias"][..vars.len()], vars).unwrap()
}

fn step(optimizer: &mut LocalOptimizer, vars: &[Var], grads: &[&[f32]], rate: f32) {
    let grads = grads.iter().map(|grad| Tensor::new(*grad, &Device::Cpu).unwrap());
    optimizer.step(vars, &grads.collect::<Vec<_>>(), rate).unwrap();
}

fn assert_near(var: &Var, want: &[f32]) {
    let have = var.to_vec1::<f32>().unwrap();
    assert!(
        have.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6),
        "{have:?}, expected {want:?}"
    );
}

#[test]
fn clipping_bounds_the_norm_over_all_tensors() {
    clips();
    on_gpu(clips);
}

fn clips() {
    let training = Training {
        clip_norm: Some(1.0),
        ..Training::default()
    };
    let vars = [var(&[0.0]), var(&[0.0, 0.0])];
    let mut sgd = optimizer(training, &vars);
    step(&mut sgd, &vars, &[&[3.0], &[0.0, 4.0]], 1.0);
    assert_near(&vars[0], &[-0.6]);
    assert_near(&vars[1], &[0.0, -0.8]);
    step(&mut sgd, &vars, &[&[0.3], &[0.0, 0.4]], 1.0);
    assert_near(&vars[0], &[-0.9]);
    // No gradient, no division by its norm.
    step(&mut sgd, &vars, &[&[0.0], &[0.0, 0.0]], 1.0);
    assert_near(&vars[0], &[-0.9]);
}

/// Some rules on a GPU and on the CPU: more variables than one launch takes, a long one, an empty one, with FedProx and clipping.
#[test]
fn a_gpu_takes_the_cpus_steps_for_many_variables() {
    for make in OptimizerSpec::ALL {
        for (clip_norm, momentum) in [(None, 0.0), (Some(0.5), 0.9)] {
            let training = Training {
                optimizer: make(),
                momentum: if make().name() == "sgd" { momentum } else { 0.0 },
                weight_decay: 0.01,
                proximal: 0.3,
                clip_norm,
                ..Training::default()
            };
            let after = || {
                let mut rng = crate::data::Rng::new(7);
                let mut random = |len: usize| {
                    let values: Vec<f32> = (0..len).map(|_| rng.normal() as f32 * 0.1).collect();
                    Tensor::from_vec(values, (len / 3, 3), &Device::Cpu).unwrap()
                };
                let lens = || (0..100).map(|at| if at == 83 { 3000 } else { at % 5 * 3 });
                let vars: Vec<Var> = lens().map(|len| Var::from_tensor(&random(len)).unwrap()).collect();
                let names: Vec<String> = (0..vars.len()).map(|at| format!("{at}.weight")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let mut optimizer = LocalOptimizer::new(&training, &names, &vars).unwrap();
                for _ in 0..3 {
                    let grads: Vec<Tensor> = lens().map(&mut random).collect();
                    optimizer.step(&vars, &grads, 0.1).unwrap();
                }
                let state = optimizer.state().unwrap().values;
                (vars.iter().flat_map(|var| values(var)).collect::<Vec<_>>(), state)
            };
            let (cpu, gpu) = (after(), on_gpu(after));
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-6 * (1.0 + b.abs());
            assert!(cpu.0.iter().zip(&gpu.0).all(near), "{training:?}");
            assert!(cpu.1.iter().zip(&gpu.1).all(near), "moments of {training:?}");
        }
    }
}

#[test]
fn the_proximal_term_pulls_back_to_the_start() {
    pulls_back();
    on_gpu(pulls_back);
}

fn pulls_back() {
    let vars = [var(&[1.0])];
    let mut sgd = optimizer(
        Training {
            proximal: 0.4,
            ..Training::default()
        },
        &vars,
    );
    step(&mut sgd, &vars, &[&[2.0]], 0.5);
    assert_near(&vars[0], &[0.0]);
    step(&mut sgd, &vars, &[&[0.0]], 0.5);
    assert_near(&vars[0], &[0.2]);
}

#[test]
fn a_missing_gradient_or_name_is_an_error() {
    let vars = [var(&[1.0])];
    assert!(optimizer(Training::default(), &vars).step(&vars, &[], 0.1).is_err());
    assert!(LocalOptimizer::new(&Training::default(), &[], &vars).is_err());
}
