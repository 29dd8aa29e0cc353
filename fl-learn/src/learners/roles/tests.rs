use fl_client::Learner as _;
use fl_compress::Dtype;
use fl_proto::Training;

use super::super::graph::tests::{built, conv_net, plan};
use super::super::trained::TrainedModel;
use super::*;
use crate::ops::with_values;

fn values(x: &Tensor) -> candle_core::Result<Vec<f32>> {
    with_values(x, <[f32]>::to_vec)
}

fn run_of(layout: Layout, aside: Vec<TensorSpec>) -> RunTensors {
    RunTensors {
        run: "run".parse().unwrap(),
        instance: Digest::of(b"run"),
        client: "a".parse().unwrap(),
        rounds: 4,
        seed: 9,
        layout: Arc::new(layout),
        aside,
        base: None,
        base_file: None,
        space: None,
    }
}

#[test]
fn a_run_may_keep_statistics_and_a_layer_on_the_device_and_freeze_another() {
    let state = tempfile::tempdir().unwrap();
    let own = built(conv_net).unwrap().layout();
    let with = |name: &str, role| {
        let tensor = own.tensors().iter().find(|tensor| tensor.name == name).unwrap();
        TensorSpec {
            role,
            ..TensorSpec::from(tensor)
        }
    };
    let aside = vec![
        with("conv.bias", Role::Frozen),
        with("head.bias", Role::Local),
        with("norm.running_mean", Role::Local),
        with("norm.running_var", Role::Local),
    ];
    let travel = own
        .tensors()
        .iter()
        .filter(|tensor| aside.iter().all(|aside| aside.name != tensor.name));
    let mut run = run_of(Layout::of(travel.map(TensorSpec::from)).unwrap(), aside);
    let frozen = init::fill(&own, &built(conv_net).unwrap().inits(), 9)[..4].to_vec();
    let plan_of = BasePlan::of(&run.aside[..1]).unwrap().unwrap();
    let raw: Vec<u8> = frozen.iter().flat_map(|value| value.to_le_bytes()).collect();
    run.base = Some(Digest::of(&plan_of.file(&[raw]).unwrap()));
    let of = |run: &RunTensors| {
        let mut learner = built(conv_net).unwrap().storing_in(Some(state.path()));
        learner.join(run).map(|()| learner)
    };
    let mut learner = of(&run).unwrap();
    assert_eq!(*learner.layout(), *run.layout);
    let weights = learner.initial(9, &Arc::default()).unwrap();
    assert_eq!(weights.len(), own.len() - 4 - 3 - 8);
    learner.load(&weights).unwrap();
    let stays = |learner: &TrainedModel, name: &str| values(learner.var_of(name).as_tensor()).unwrap();
    let names = ["conv.bias", "head.bias", "norm.running_mean", "norm.running_var"];
    let before = names.map(|name| stays(&learner, name));
    assert_eq!(before[0], frozen);
    let training = Training {
        learning_rate: 0.1,
        ..Training::default()
    };
    let mut plan = plan(training, 1);
    plan.squared_gradients = true;
    let fit = learner.fit(&plan).unwrap();
    assert_eq!(fit.squared_gradients.unwrap().len(), run.layout.trained().len());
    let after = names.map(|name| stays(&learner, name));
    assert_eq!(before[0], after[0], "frozen");
    assert!((1..4).all(|at| before[at] != after[at]), "{before:?} {after:?}");
    // Another process goes on with what this one has stored, and a stopped training changes nothing that stays.
    let mut next = of(&run).unwrap();
    next.load(&weights).unwrap();
    assert_eq!(names.map(|name| stays(&next, name)), after);
    plan.progress.stop();
    assert!(next.fit(&plan).is_err());
    next.load(&weights).unwrap();
    assert_eq!(names.map(|name| stays(&next, name)), after);
    // Without them, the model is whole again.
    next.join(&run_of((*own).clone(), Vec::new())).unwrap();
    assert_eq!(*next.layout(), *own);
    run.base = None;
    let error = format!("{:#}", of(&run).unwrap_err());
    assert!(
        error.contains("frozen tensors are not those that the learner draws"),
        "{error}"
    );
}

#[test]
fn a_run_with_other_tensors_or_roles_is_refused_by_name() {
    let own = built(conv_net).unwrap().layout();
    let all = || own.tensors().iter().map(TensorSpec::from);
    let join = |specs: Vec<TensorSpec>| {
        let mut learner = built(conv_net).unwrap();
        format!(
            "{:#}",
            learner
                .join(&run_of(Layout::of(specs).unwrap(), Vec::new()))
                .unwrap_err()
        )
    };
    let trained = all()
        .map(|spec| TensorSpec {
            role: Role::Trained,
            ..spec
        })
        .collect();
    assert!(
        join(trained)
            .contains("tensor `norm.running_mean` is `trained` in the run, and running statistics in the model")
    );
    assert!(join(all().skip(1).collect()).contains("tensor `conv.bias` of the model is not in the run"));
    let other = all().chain([TensorSpec::new("other", &[2], Dtype::F32, Role::Trained)]);
    assert!(join(other.collect()).contains("tensor `other` is missing"));
    let wide = all().map(|spec| match &*spec.name {
        "head.bias" => TensorSpec::new("head.bias", &[5], Dtype::F32, Role::Trained),
        _ => spec,
    });
    assert!(join(wide.collect()).contains("tensor `head.bias` has shape [3]; [5] is expected"));
}
