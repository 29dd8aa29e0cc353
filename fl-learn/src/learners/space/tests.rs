use std::path::PathBuf;

use fl_compress::{Basis, Digest, SpaceSpec};
use fl_proto::{Length, Training};

use fl_compress::weights::BasePlan;

use super::super::LearnerChoice;
use super::super::info::LearnerInfo;
use super::*;
use crate::data::{Builtin, ClientData, DataSet as _};
use candle_nn::{linear, seq};
use fl_client::DeviceChoice;

const SEED: u64 = 7;

fn data() -> ClientData {
    let builtin = Builtin {
        train: 120,
        test: 50,
        ..Builtin::default()
    };
    builtin.load().unwrap()
}

fn learner(text: &str) -> InSpace {
    let choice: LearnerChoice = text.parse().unwrap();
    InSpace::new(choice.build_trained(DeviceChoice::Cpu, data()).unwrap())
}

/// The run that a server makes of the learner's first weights, and these.
fn run(learner: &mut InSpace, spec: SpaceSpec, weights_seed: u64) -> (RunTensors, Space, Vec<f32>) {
    let w0 = learner.inner.initial(weights_seed, &Arc::default()).unwrap();
    let space = Space::new(learner.inner.layout(), spec, SEED).unwrap();
    let trained = || (space.full().tensors().iter()).filter(|tensor| tensor.role == Role::Trained);
    let frozen = trained().map(|tensor| TensorSpec {
        role: Role::Frozen,
        ..TensorSpec::from(tensor)
    });
    let aside: Vec<TensorSpec> = frozen.collect();
    let raw = trained().map(|tensor| {
        let values = w0[tensor.offset..][..tensor.len].iter();
        values.flat_map(|value| value.to_le_bytes()).collect()
    });
    let raw: Vec<Vec<u8>> = raw.collect();
    let file = BasePlan::of(&aside).unwrap().unwrap().file(&raw).unwrap();
    let tensors = RunTensors {
        run: "run".parse().unwrap(),
        instance: Digest::of(b"run"),
        client: "client".parse().unwrap(),
        rounds: 3,
        seed: SEED,
        layout: Arc::clone(space.layout()),
        aside,
        base: Some(Digest::of(&file)),
        base_file: None,
        space: Some(spec),
    };
    (tensors, space, w0)
}

fn joined(text: &str, spec: SpaceSpec) -> (InSpace, Space, Vec<f32>) {
    let mut learner = learner(text);
    let (tensors, space, w0) = run(&mut learner, spec, SEED);
    learner.join(&tensors).unwrap();
    let z = learner.initial(SEED, &Arc::default()).unwrap();
    assert_eq!(z, space.first(&w0));
    learner.load(&z).unwrap();
    (learner, space, w0)
}

fn weights(learner: &dyn Learner, len: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; len];
    learner.weights(&mut out).unwrap();
    out
}

fn plan(length: Length, learning_rate: f32) -> FitPlan {
    let training = Training {
        length,
        learning_rate,
        batch_size: 16,
        ..Training::default()
    };
    FitPlan::new(training, 1, 3, 5)
}

const RANK: SpaceSpec = SpaceSpec::LowRank {
    rank: 8,
    basis: Basis::Random,
};

#[test]
fn a_model_learns_in_a_space_and_its_weights_are_a_function_of_z() {
    for spec in [SpaceSpec::shared(2000), RANK] {
        let (mut learner, space, w0) = joined("mlp", spec);
        let before = learner.evaluate().unwrap().unwrap();
        learner.fit(&plan(Length::Epochs(6), 0.5)).unwrap();
        let after = learner.evaluate().unwrap().unwrap();
        assert!(after.loss < 0.7 * before.loss, "{spec:?}: {before:?} {after:?}");
        let z = weights(&learner, space.layout().len());
        let mut w = w0.clone();
        space.expand(&w0, &z, &mut w);
        assert_eq!(weights(&learner.inner, w.len()), w);
        // Another client with this z evaluates the same model.
        let (mut other, ..) = joined("mlp", spec);
        other.load(&z).unwrap();
        assert_eq!(other.evaluate().unwrap().unwrap(), after);
    }
}

#[test]
fn the_gradient_of_z_is_the_projected_gradient_of_the_weights() {
    for (text, spec) in [("mlp", SpaceSpec::shared(900)), ("mlp", RANK), ("lenet", RANK)] {
        let one = plan(Length::Steps(1), 0.25);
        let (mut learner, space, w0) = joined(text, spec);
        learner.fit(&one).unwrap();
        let z = weights(&learner, space.layout().len());
        let mut plain = self::learner(text);
        plain.load(&w0).unwrap();
        plain.fit(&one).unwrap();
        let mut moved = weights(&plain, w0.len());
        moved.iter_mut().zip(&w0).for_each(|(w, w0)| *w -= w0);
        let mut projected = vec![0.0; z.len()];
        space.project(&moved, 0, &mut projected);
        let largest = projected.iter().fold(0.0f32, |most, z| most.max(z.abs()));
        let apart = projected.iter().zip(&z).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4 * largest, "{text}, {spec:?}: {apart} of {largest}");
    }
}

#[test]
fn a_round_trains_its_block_and_the_other_blocks_keep_their_values() {
    let spec = SpaceSpec::Shared {
        values: 2000,
        blocks: 3,
    };
    let (mut learner, space, _) = joined("mlp", spec);
    let mut before = weights(&learner, space.layout().len());
    let mut losses = Vec::new();
    for round in 1..=4 {
        let fit = learner
            .fit(&FitPlan {
                round,
                squared_gradients: true,
                ..plan(Length::Epochs(2), 0.5)
            })
            .unwrap();
        losses.push(fit.loss);
        let after = weights(&learner, space.layout().len());
        let squares = fit.squared_gradients.unwrap();
        let trained = space.trained(space.block(round));
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            let own = trained.iter().any(|of| of.contains(&at));
            assert!(
                own || (before == after && squares[at] == 0.0),
                "round {round}, value {at}"
            );
        }
        let moved = |of: &Range<usize>| before[of.clone()] != after[of.clone()];
        assert!(trained.iter().all(moved), "round {round}");
        before = after;
    }
    assert!(losses.windows(2).all(|two| two[1] < two[0]), "{losses:?}");
    // The weights inside are a function of z: another client with this z evaluates the same model.
    let own = learner.evaluate().unwrap().unwrap();
    let (mut other, ..) = joined("mlp", spec);
    other.load(&before).unwrap();
    assert_eq!(other.evaluate().unwrap().unwrap(), own);
}

#[test]
fn equal_seeds_give_equal_bits_and_buffers_are_trained_as_before() {
    let text = "{ name = 'resnet8', norm = 'batch' }";
    let trained = || {
        let (mut learner, space, w0) = joined(text, SpaceSpec::shared(3000));
        let fit = learner.fit(&plan(Length::Steps(2), 0.1)).unwrap();
        (fit, weights(&learner, space.layout().len()), space, w0)
    };
    let (fit, z, space, w0) = trained();
    assert_eq!((fit, z.clone()), {
        let (fit, z, ..) = trained();
        (fit, z)
    });
    let (own, first) = (&z[space.layout().trained().end..], &w0[space.full().trained().end..]);
    assert!(own.len() == first.len() && !own.is_empty() && own != first);
}

#[test]
fn first_weights_of_another_seed_come_from_the_base_file_or_are_refused() {
    let spec = SpaceSpec::shared(500);
    let mut learner = learner("mlp");
    let (mut tensors, space, w0) = run(&mut learner, spec, SEED + 1);
    let error = learner.join(&tensors).unwrap_err().to_string();
    assert!(
        error.contains("first weights") && error.contains("`serve_base = true`"),
        "{error}"
    );
    let dir = tempfile::tempdir().unwrap();
    let file: PathBuf = dir.path().join("first.safetensors");
    fl_client::weights::export(&file, space.full(), &w0).unwrap();
    tensors.base_file = Some(file);
    learner.join(&tensors).unwrap();
    learner.load(&space.first(&w0)).unwrap();
    assert_eq!(weights(&learner.inner, w0.len()), w0);
    // The next run has no space.
    let plain = RunTensors {
        layout: learner.inner.layout(),
        aside: Vec::new(),
        base: None,
        base_file: None,
        space: None,
        ..tensors
    };
    learner.join(&plain).unwrap();
    assert_eq!(learner.initial(SEED, &Arc::default()).unwrap().len(), w0.len());
}

#[test]
fn tensors_of_another_model_are_named() {
    let spec = SpaceSpec::shared(500);
    let mut learner = learner("mlp");
    let (tensors, ..) = run(&mut learner, spec, SEED);
    let mut other = tensors.clone();
    other.aside[1].shape = vec![200, 783];
    let error = learner.join(&other).unwrap_err().to_string();
    assert!(error.contains("fc1.weight"), "{error}");
    let other = RunTensors {
        space: Some(SpaceSpec::shared(501)),
        ..tensors.clone()
    };
    let error = learner.join(&other).unwrap_err().to_string();
    assert!(error.contains(".z`"), "{error}");
    let other = RunTensors {
        space: Some(SpaceSpec::shared(200_000)),
        ..tensors
    };
    let error = learner.join(&other).unwrap_err().to_string();
    assert!(
        error.contains("`train.space.shared` is 200000, but must be 4 to 159010"),
        "{error}"
    );
}

#[test]
fn a_programs_own_model_trains_in_a_space_as_the_built_in_one() {
    let info = LearnerInfo::of_graph("net", |vb, input, _| {
        let (first, last) = (
            linear(input.len(), 20, vb.pp("fc1"))?,
            linear(20, input.classes, vb.pp("fc2"))?,
        );
        let net = seq()
            .add_fn(|x| x.flatten_from(1))
            .add(first)
            .add_fn(candle_core::Tensor::relu);
        Ok(Box::new(net.add(last)))
    });
    let theirs = info
        .build_trained(&toml::Table::new(), DeviceChoice::Cpu, data())
        .unwrap();
    let mut learners = [learner("{ name = 'mlp', hidden = [20] }"), InSpace::new(theirs)];
    let spec = SpaceSpec::Shared { values: 40, blocks: 1 };
    let (tensors, space, w0) = run(&mut learners[0], spec, SEED);
    let path = tempfile::tempdir().unwrap();
    let file = path.path().join("base.safetensors");
    let plain = Layout::of(space.full().tensors().iter().map(TensorSpec::from)).unwrap();
    fl_client::weights::export(&file, &plain, &w0).unwrap();
    let tensors = RunTensors {
        base_file: Some(file),
        ..tensors
    };
    let training = Training {
        length: Length::Epochs(1),
        ..Training::default()
    };
    let z = learners.each_mut().map(|learner| {
        learner.join(&tensors).unwrap();
        let first = learner.initial(SEED, &Arc::default()).unwrap();
        learner.load(&first).unwrap();
        learner.fit(&FitPlan::new(training, 1, 3, 5)).unwrap();
        weights(learner, first.len())
    });
    let apart = z[0].iter().zip(&z[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-4, "{apart}");
}
