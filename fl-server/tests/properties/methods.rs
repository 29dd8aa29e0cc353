//! Laws of every server optimizer and every aggregator. Each test iterates over the tables, so it covers a new method
//! once it is registered.

use std::sync::Arc;

use fl_compress::{Digest, Frame, Layout, Memory, Spec};
use fl_server::model::{
    Aggregator, AggregatorMethod, GlobalModel, Methods, ModelError, OptimizerMethod, ServerOptimizer, Updates,
    optimizer,
};
use fl_server::plan::{Bound, Key, MethodInfo, MethodSpec, Range, RunPlan, any_uplink};
use fl_server::state_machine::Contribution;
use proptest::prelude::*;

use crate::client;
use crate::contains::assert_contains;
use crate::model::{Frames, compressed, layout, plan, values, with_rate, without_limits};

const ROUNDS: u64 = 5;

/// Every optimizer with the mean, and every aggregator with the default optimizer.
fn methods() -> Vec<(MethodSpec, MethodSpec)> {
    let methods = Methods::default();
    let (first, mean) = (
        methods.optimizers().next().unwrap(),
        methods.aggregators().next().unwrap(),
    );
    let optimizers = methods.optimizers().map(|optimizer| (optimizer, mean.clone()));
    let aggregators = methods.aggregators().map(|aggregator| (first.clone(), aggregator));
    optimizers.chain(aggregators).collect()
}

fn planned((optimizer, aggregator): (MethodSpec, MethodSpec), downlink: Spec) -> RunPlan {
    RunPlan {
        optimizer,
        aggregator,
        rounds: ROUNDS,
        ..plan(downlink)
    }
}

fn start(layout: &Arc<Layout>, plan: &RunPlan) -> GlobalModel {
    GlobalModel::initial(Arc::clone(layout), values(1, layout.len()), plan).unwrap()
}

/// The updates of a round; the update of client 2 exceeds the limits.
fn round_of(frames: &mut Frames, layout: &Arc<Layout>, clients: usize, round: u64) -> Vec<Contribution> {
    let delta = |i: usize| {
        let times = if i == 2 { 9.0 } else { 1.0 };
        let values = values(round * 1_000 + i as u64, layout.len());
        values.iter().map(|value| times * value).collect::<Vec<_>>()
    };
    let update = |i: usize| frames.update_against(None, layout, i, round, &delta(i));
    (0..clients).map(update).collect()
}

/// Aggregates one round with these values, from a model of zeros and with an exact downlink.
fn aggregate(aggregator: &MethodSpec, deltas: &[Vec<f32>], limited: bool) -> Vec<f32> {
    let layout = Arc::new(Layout::new([("w", vec![deltas[0].len()])]).unwrap());
    let optimizer = Methods::default().optimizers().next().unwrap();
    let plan = planned((optimizer, aggregator.clone()), Spec::exact());
    let plan = if limited { plan } else { without_limits(plan) };
    let mut frames = Frames::default();
    let updates: Vec<_> = deltas
        .iter()
        .enumerate()
        .map(|(i, delta)| frames.update_against(None, &layout, i, 1, delta))
        .collect();
    let mut global = GlobalModel::initial(Arc::clone(&layout), vec![0.0; layout.len()], &plan).unwrap();
    global.close(1, &updates, frames.read()).unwrap();
    global.model().to_vec()
}

/// The method with any valid parameters.
fn any_numbers(spec: &MethodSpec) -> BoxedStrategy<MethodSpec> {
    let numbers: Vec<BoxedStrategy<f32>> = spec
        .info()
        .keys
        .iter()
        .map(|key| match key.range {
            Range::Positive => (-3f32..2.0).prop_map(|exponent| 10f32.powf(exponent)).boxed(),
            Range::Below(bound) => (0.0..bound).boxed(),
            Range::Within(least, most) => (least.log10()..=most.log10())
                .prop_map(move |exponent| 10f32.powf(exponent).clamp(least, most))
                .boxed(),
        })
        .collect();
    let spec = spec.clone();
    let with = move |numbers: Vec<f32>| {
        let keys = spec.info().keys.iter().zip(numbers);
        keys.fold(spec.clone(), |spec, (key, number)| spec.with(key.name, number).unwrap())
    };
    numbers.prop_map(with).boxed()
}

fn any_optimizer() -> impl Strategy<Value = MethodSpec> {
    let all: Vec<_> = Methods::default().optimizers().collect();
    prop::sample::select(all).prop_flat_map(|spec| any_numbers(&spec))
}

fn any_aggregator() -> impl Strategy<Value = MethodSpec> {
    let all: Vec<_> = Methods::default().aggregators().collect();
    prop::sample::select(all).prop_flat_map(|spec| any_numbers(&spec))
}

/// Updates of equal length and any magnitude.
fn deltas(clients: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<f32>>> {
    (clients, 1..40usize).prop_flat_map(|(clients, len)| {
        let value = (-1f32..1.0, -6i32..7).prop_map(|(value, exponent)| value * 10f32.powi(exponent));
        prop::collection::vec(prop::collection::vec(value, len), clients)
    })
}

fn largest(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(value.abs())).fold(0.0, f64::max)
}

#[derive(serde::Deserialize)]
struct Vectors {
    aggregates: Vec<Vec<f32>>,
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    optimizer: String,
    numbers: std::collections::BTreeMap<String, f32>,
    updates: Vec<Vec<f32>>,
    state: Vec<Vec<f32>>,
}

/// Computed by `fixtures/optimizers.py`.
#[test]
fn every_optimizer_gives_the_bits_of_the_numpy_script() {
    let vectors: Vectors = serde_json::from_str(include_str!("../fixtures/optimizers.json")).unwrap();
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for case in &vectors.cases {
        let methods = Methods::default();
        let spec = methods.optimizers().find(|spec| spec.name() == case.optimizer).unwrap();
        let spec = case
            .numbers
            .iter()
            .fold(spec, |spec, (key, number)| spec.with(key, *number).unwrap());
        let method = optimizer::METHODS
            .iter()
            .find(|method| method.info.name == case.optimizer);
        let mut optimizer = (method.unwrap().build)(&spec, vectors.aggregates[0].len());
        for (round, (aggregate, expected)) in (1..).zip(vectors.aggregates.iter().zip(&case.updates)) {
            let mut update = aggregate.clone();
            optimizer.update(round, &mut update);
            assert_eq!(bits(&update), bits(expected), "{spec:?}, round {round}");
        }
        let mut state = Vec::new();
        optimizer.save(&mut state);
        let expected: Vec<u8> = case
            .state
            .iter()
            .flatten()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        assert_eq!(state, expected, "{spec:?}");
    }
    for method in optimizer::METHODS {
        let cases = vectors.cases.iter().filter(|case| case.optimizer == method.info.name);
        assert!(cases.count() >= 2, "{} has vectors", method.info.name);
    }
}

#[test]
fn a_restart_from_any_checkpoint_repeats_the_rounds_to_the_bit() {
    let layout = layout();
    for methods in methods() {
        let (plan, mut frames) = (planned(methods, compressed()), Frames::default());
        let mut global = start(&layout, &plan);
        let mut saved = vec![global.save()];
        let rounds: Vec<_> = (1..=ROUNDS)
            .map(|round| round_of(&mut frames, &layout, 5, round))
            .collect();
        for (round, updates) in (1..).zip(&rounds) {
            assert_eq!(global.close(round, updates, frames.read()).unwrap().unused, None);
            saved.push(global.save());
        }
        for (version, bytes) in saved.iter().enumerate() {
            let mut again = GlobalModel::load(Arc::clone(&layout), &plan, bytes).unwrap();
            assert_eq!(&again.save(), bytes);
            for (round, updates) in (1..).zip(&rounds).skip(version) {
                again.close(round, updates, frames.read()).unwrap();
                assert_eq!(
                    again.save(),
                    saved[round as usize],
                    "{} {version}",
                    plan.optimizer.name()
                );
            }
        }
        let last = saved.last().unwrap();
        for cut in (0..last.len()).step_by(7) {
            assert!(GlobalModel::load(Arc::clone(&layout), &plan, &last[..cut]).is_err());
        }
    }
}

#[test]
fn a_rollback_forgets_momentum_and_what_follows_is_repeated_to_the_bit() {
    let layout = layout();
    for methods in methods() {
        let (plan, mut frames) = (planned(methods, compressed()), Frames::default());
        let first = values(1, layout.len());
        let mut global = start(&layout, &plan);
        for round in 1..=2 {
            let updates = round_of(&mut frames, &layout, 4, round);
            global.close(round, &updates, frames.read()).unwrap();
        }
        global.roll_back(3, first.clone(), &Digest::of_f32(&first)).unwrap();
        // An audit that starts at the rollback, and a restart from a checkpoint after it.
        let mut audit = GlobalModel::from_frames(Arc::clone(&layout), first, 3, None, &plan).unwrap();
        let mut restarted = GlobalModel::load(Arc::clone(&layout), &plan, &global.save()).unwrap();
        for round in 4..=5 {
            let updates = round_of(&mut frames, &layout, 4, round);
            let result = global.close(round, &updates, frames.read()).unwrap();
            for other in [&mut audit, &mut restarted] {
                assert_eq!(other.close(round, &updates, frames.read()).unwrap(), result);
                assert_eq!(other.save(), global.save(), "{}", plan.optimizer.name());
            }
        }
    }
}

#[test]
fn no_update_keeps_a_round_from_closing_whatever_the_methods() {
    let one_bit = r#"{ "memory": "error-feedback",
        "default": { "quantize": { "uniform": { "bits": 1, "rounding": "stochastic" } } } }"#;
    let default = methods().swap_remove(0);
    let mut plans: Vec<_> = methods()
        .into_iter()
        .map(|methods| planned(methods, compressed()))
        .collect();
    plans.push(planned(default.clone(), Spec::exact()));
    plans.push(planned(default.clone(), serde_json::from_str(one_bit).unwrap()));
    let layout = layout();
    for plan in plans {
        for alternating in [true, false] {
            let (mut frames, mut mine) = (Frames::default(), values(1, layout.len()));
            let mut global = start(&layout, &plan);
            let mut unused = Vec::new();
            for round in 1..=12 {
                let sign = |i: usize| if alternating && i.is_multiple_of(3) { -1.0 } else { 1.0 };
                let delta: Vec<f32> = match round {
                    1..=8 => (0..layout.len()).map(|i| sign(i) * f32::MAX).collect(),
                    _ => values(round, layout.len()),
                };
                let updates = vec![frames.update_against(None, &layout, 0, round, &delta)];
                let mut again = GlobalModel::load(Arc::clone(&layout), &plan, &global.save()).unwrap();
                let result = global.close(round, &updates, frames.read()).unwrap();
                assert_eq!(
                    again.close(round, &updates, frames.read()).unwrap(),
                    result,
                    "after a restart"
                );
                let frame = Frame::parse(&result.frame, &layout).unwrap();
                frame.accumulate(1.0, &mut mine).unwrap();
                assert_eq!(Digest::of_f32(&mine), result.step.model);
                assert!(global.model().iter().all(|value| value.is_finite()));
                unused.extend(result.unused.map(|_| round));
            }
            if alternating && (&plan.optimizer, &plan.aggregator) == (&default.0, &default.1) {
                assert!(
                    !unused.is_empty() && unused.iter().all(|&round| round <= 9),
                    "{unused:?}"
                );
            }
        }
    }
}

#[test]
fn updates_up_to_the_plans_largest_value_are_used_in_every_round() {
    let layout = layout();
    let of_methods = methods().into_iter().map(|methods| planned(methods, Spec::exact()));
    let of_rates = [0.5, 1.0, 100.0].map(|rate| RunPlan {
        rounds: 40,
        ..with_rate(rate)
    });
    for plan in of_methods.chain(of_rates) {
        let (mut frames, largest) = (Frames::default(), plan.largest_value());
        assert!(largest > 1e15, "{}: no honest update is refused", plan.optimizer.name());
        let mut global = start(&layout, &plan);
        for round in 1..=plan.rounds {
            let delta = vec![largest; layout.len()];
            let updates: Vec<_> = (0..3)
                .map(|i| frames.update_against(None, &layout, i, round, &delta))
                .collect();
            assert_eq!(global.close(round, &updates, frames.read()).unwrap().unused, None);
        }
    }
}

#[test]
fn an_update_far_beyond_the_others_changes_no_bit_whatever_the_methods() {
    let layout = layout();
    let default = methods().swap_remove(0);
    let of_methods = methods().into_iter().map(|methods| planned(methods, compressed()));
    for plan in of_methods.chain([planned(default.clone(), Spec::exact())]) {
        let mut frames = Frames::default();
        let honest = (0..3).map(|i| Contribution {
            examples: 20,
            ..frames.update_against(None, &layout, i, 1, &values(i as u64, layout.len()))
        });
        let honest: Vec<_> = honest.collect();
        let mut calm = start(&layout, &plan);
        calm.close(1, &honest, frames.read()).unwrap();
        for value in [1e30, -1e3] {
            let attack = Contribution {
                examples: 1 << 40,
                ..frames.update_against(None, &layout, 3, 1, &vec![value; layout.len()])
            };
            let all: Vec<_> = honest.iter().cloned().chain([attack]).collect();
            let mut attacked = start(&layout, &plan);
            let limited = attacked.close(1, &all, frames.read()).unwrap().limited;
            let methods = format!("{} {} {value:e}", plan.optimizer.name(), plan.aggregator.name());
            assert_eq!(attacked.digest(), calm.digest(), "{methods}");
            let [limited] = &limited[..] else {
                panic!("{methods}: {limited:?}")
            };
            assert_eq!(limited.client, client(3), "{methods}: {limited:?}");
            assert_eq!(limited.counted, 0.0, "{methods}: {limited:?}");
            assert_contains(&limited.to_string(), "client-03 does not count: its norm is");
            if (&plan.optimizer, &plan.aggregator) == (&default.0, &default.1) {
                let mut unlimited = start(&layout, &without_limits(plan.clone()));
                unlimited.close(1, &all, frames.read()).unwrap();
                assert_ne!(unlimited.digest(), calm.digest());
            }
        }
    }
}

/// Direct computation from the definition, in f64.
fn trimmed(deltas: &[Vec<f32>], dropped: usize) -> Vec<f64> {
    let mean = |at: usize| {
        let mut column: Vec<f64> = deltas.iter().map(|delta| f64::from(delta[at])).collect();
        column.sort_by(f64::total_cmp);
        let kept = &column[dropped..column.len() - dropped];
        kept.iter().sum::<f64>() / kept.len() as f64
    };
    (0..deltas[0].len()).map(mean).collect()
}

fn trimmed_mean(trim: f32) -> MethodSpec {
    let methods = Methods::default();
    let spec = methods
        .aggregators()
        .find(|spec| spec.name() == "trimmed-mean")
        .unwrap();
    spec.with("trim", trim).unwrap()
}

#[test]
fn the_trimmed_mean_is_its_definition_in_blocks_of_columns_too() {
    // With five or more updates, columns are aggregated in several blocks.
    for (clients, trim, dropped) in [(1, 0.4, 0), (3, 0.4, 1), (4, 0.25, 1), (11, 0.2, 2), (23, 0.45, 10)] {
        for len in [1, 2, 7, 64, 101] {
            let deltas: Vec<_> = (0..clients).map(|i| values(i, len)).collect();
            let found = aggregate(&trimmed_mean(trim), &deltas, false);
            for (found, expected) in found.iter().zip(trimmed(&deltas, dropped)) {
                assert!(
                    (f64::from(*found) - expected).abs() < 1e-6,
                    "{clients} clients, {len} values"
                );
            }
        }
    }
}

#[test]
fn a_trimmed_minority_cannot_move_a_coordinate_beyond_the_honest_values() {
    let len = 50;
    let mut deltas: Vec<_> = (0..10).map(|i| values(i, len)).collect();
    let honest = deltas[2..].to_vec();
    deltas[0] = vec![1e6; len];
    deltas[1] = (0..len)
        .map(|at| if at.is_multiple_of(2) { -1e6 } else { 1e6 })
        .collect();
    let within = |found: &[f32]| {
        found.iter().enumerate().all(|(at, value)| {
            let column = honest.iter().map(|delta| delta[at]);
            (column.clone().fold(f32::MAX, f32::min)..=column.fold(f32::MIN, f32::max)).contains(value)
        })
    };
    assert!(within(&aggregate(&trimmed_mean(0.2), &deltas, false)));
    let mean = Methods::default().aggregators().next().unwrap();
    assert!(
        !within(&aggregate(&mean, &deltas, false)),
        "the mean does not hold them"
    );
}

#[test]
fn the_trimmed_mean_adds_the_predictor_to_the_updates_that_name_it() {
    let (layout, mut frames) = (layout(), Frames::default());
    let mut plan = without_limits(planned(
        (Methods::default().optimizers().next().unwrap(), trimmed_mean(0.2)),
        Spec::exact(),
    ));
    plan.uplink.memory = Memory::Cafe;
    let mut global = GlobalModel::initial(Arc::clone(&layout), vec![0.0; layout.len()], &plan).unwrap();
    let deltas = |round: u64| -> Vec<Vec<f32>> { (0..6).map(|i| values(round * 100 + i, layout.len())).collect() };
    let first: Vec<_> = (0..6)
        .map(|i| frames.update_against(None, &layout, i, 1, &deltas(1)[i]))
        .collect();
    let result = global.close(1, &first, frames.read()).unwrap();
    frames.0.insert(result.step.frame, result.frame.clone());
    let before = global.model().to_vec();
    let second: Vec<_> = (0..6)
        .map(|i: usize| {
            let predictor = i.is_multiple_of(2).then_some(result.frame.as_slice());
            frames.update_against(predictor, &layout, i, 2, &deltas(2)[i])
        })
        .collect();
    global.close(2, &second, frames.read()).unwrap();
    let learned = trimmed(&deltas(2), 1);
    for ((now, before), learned) in global.model().iter().zip(&before).zip(learned) {
        assert!((f64::from(now - before) - learned).abs() < 1e-5);
    }
}

/// A method that a user of the library might register: the coordinate-wise median.
static MEDIAN: AggregatorMethod = AggregatorMethod {
    info: MethodInfo {
        name: "median",
        about: "the lower median of each coordinate",
        keys: &[],
        bound: |_, _| Bound::gain(1.0),
        accepts: any_uplink,
    },
    build: |_| Box::new(Median),
};

#[derive(Debug)]
struct Median;

impl Aggregator for Median {
    fn aggregate(&self, updates: &mut Updates<'_>, out: &mut [f32]) -> Result<(), ModelError> {
        let mut all = vec![vec![0.0; out.len()]; updates.len()];
        for (at, values) in all.iter_mut().enumerate() {
            updates.values(at, values)?;
        }
        for (at, out) in out.iter_mut().enumerate() {
            let mut column: Vec<f32> = all.iter().map(|values| values[at]).collect();
            column.sort_by(f32::total_cmp);
            *out = column[(column.len() - 1) / 2];
        }
        Ok(())
    }
}

/// A method whose result does not depend on the size of its input.
static SIGN: OptimizerMethod = OptimizerMethod {
    info: MethodInfo {
        name: "sign",
        about: "the sign of the aggregate",
        keys: &[Key {
            name: "learning_rate",
            default: 1.0,
            range: Range::Positive,
            about: "change of a value in a round",
        }],
        bound: |spec, _| Bound::constant(spec.number("learning_rate").into()),
        accepts: any_uplink,
    },
    build: |spec, _| Box::new(Sign(spec.number("learning_rate"))),
};

#[derive(Debug)]
struct Sign(f32);

impl ServerOptimizer for Sign {
    fn update(&mut self, _round: u64, aggregate: &mut [f32]) {
        aggregate.iter_mut().for_each(|value| *value = self.0.copysign(*value));
    }

    fn save(&self, _out: &mut Vec<u8>) {}

    fn load(&mut self, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_constant_bound_leaves_less_room_for_updates() {
    let methods = Methods::default().with_optimizer(&SIGN);
    let (sign, mean) = (
        methods.optimizers().find(|spec| spec.name() == "sign").unwrap(),
        methods.aggregators().next().unwrap(),
    );
    let limit = f32::MAX / (4.0 * ROUNDS as f32);
    for (learning_rate, expected) in [(1.0, limit), (limit / 2.0, limit / 2.0), (2.0 * limit, 0.0)] {
        let optimizer = sign.clone().with("learning_rate", learning_rate).unwrap();
        let plan = planned((optimizer, mean.clone()), Spec::exact());
        let found = plan.largest_value();
        assert!((found - expected).abs() <= 1e-6 * limit, "{learning_rate:e}: {found:e}");
        let (layout, mut frames) = (layout(), Frames::default());
        let mut global = start(&layout, &plan);
        for round in 1..=ROUNDS {
            let delta = vec![found; layout.len()];
            let updates = vec![frames.update_against(None, &layout, 0, round, &delta)];
            assert_eq!(global.close(round, &updates, frames.read()).unwrap().unused, None);
        }
    }
}

#[test]
fn a_method_of_a_user_is_named_in_run_toml_and_used() {
    let methods = Methods::default().with_aggregator(&MEDIAN);
    let text = r#"
        name = "r"
        task = "t"
        rounds = 2
        model = "m.safetensors"
        [cohort]
        min = 2
        target = 3
        [aggregator]
        name = "median"
    "#;
    let read = methods.plan(text, std::path::Path::new("")).unwrap();
    let unknown = RunPlan::from_toml(text, std::path::Path::new(""))
        .unwrap_err()
        .to_string();
    assert_contains(&unknown, "unknown aggregator `median`; there are: mean,");
    let found = aggregate(
        &read.aggregator,
        &[vec![1.0, 9.0], vec![2.0, 8.0], vec![7.0, 3.0]],
        false,
    );
    assert_eq!(found, [2.0, 8.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_optimizer_stays_within_its_bound_and_continues_from_its_saved_state(
        spec in any_optimizer(),
        rounds in deltas(2..8),
        exponent in -3i32..1,
    ) {
        let method = spec_method(&spec);
        let (count, len) = (rounds.len() as u64, rounds[0].len());
        let bound = spec.bound(count);
        // Up to the largest values that the server accepts.
        let most = bound.largest_input.min(f64::from(f32::MAX) / (4.0 * count as f64 * bound.gain.max(1.0)));
        let times = most * 10f64.powi(exponent) / 1e6;
        let mut optimizer = (method.build)(&spec, len);
        let mut given = 0f64;
        for (round, values) in (1..).zip(&rounds) {
            let input: Vec<f32> = values.iter().map(|value| (f64::from(*value) * times) as f32).collect();
            given = given.max(largest(&input));
            let mut state = Vec::new();
            optimizer.save(&mut state);
            let mut restored = (method.build)(&spec, len);
            restored.load(&state).unwrap();
            prop_assert!(restored.load(&[&state[..], &[0]].concat()).is_err());
            let mut restored = (method.build)(&spec, len);
            restored.load(&state).unwrap();
            let (mut update, mut again) = (input.clone(), input);
            optimizer.update(round, &mut update);
            restored.update(round, &mut again);
            prop_assert_eq!(&update, &again);
            prop_assert!(update.iter().all(|value| value.is_finite()));
            prop_assert!(largest(&update) <= (bound.gain * given + bound.constant) * (1.0 + 1e-4), "{} of {given}", largest(&update));
        }
    }

    #[test]
    fn the_order_of_arrival_does_not_matter_whatever_the_aggregator(
        spec in any_aggregator(),
        order in Just((0..7usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let (layout, mut frames) = (layout(), Frames::default());
        let optimizer = Methods::default().optimizers().next().unwrap();
        let plan = planned((optimizer, spec), compressed());
        let updates = round_of(&mut frames, &layout, 7, 1);
        let shuffled: Vec<_> = order.iter().map(|&i| updates[i].clone()).collect();
        let (mut one, mut other) = (start(&layout, &plan), start(&layout, &plan));
        prop_assert_eq!(
            one.close(1, &updates, frames.read()).unwrap(),
            other.close(1, &shuffled, frames.read()).unwrap()
        );
        prop_assert_eq!(one.save(), other.save());
    }

    #[test]
    fn an_aggregate_lies_between_the_updates_and_that_of_equal_updates_is_the_update(
        spec in any_aggregator(),
        deltas in deltas(1..9),
        limited in any::<bool>(),
    ) {
        // The limits scale updates down.
        let found = aggregate(&spec, &deltas, limited);
        for (at, value) in found.iter().enumerate() {
            let column = deltas.iter().map(|delta| f64::from(delta[at]));
            let (least, most) = (column.clone().fold(0.0, f64::min), column.fold(0.0, f64::max));
            let room = 1e-5 * least.abs().max(most);
            prop_assert!((least - room..=most + room).contains(&f64::from(*value)), "{value}: {least} to {most}");
        }
        let equal = vec![deltas[0].clone(); deltas.len()];
        for (found, value) in aggregate(&spec, &equal, limited).iter().zip(&deltas[0]) {
            prop_assert!((found - value).abs() <= 1e-5 * value.abs(), "{found} of {value}");
        }
    }

    #[test]
    fn twice_the_updates_are_twice_the_aggregate(spec in any_aggregator(), deltas in deltas(1..9)) {
        let twice: Vec<Vec<f32>> = deltas.iter().map(|delta| delta.iter().map(|value| 2.0 * value).collect()).collect();
        let expected: Vec<f32> = aggregate(&spec, &deltas, true).iter().map(|value| 2.0 * value).collect();
        prop_assert_eq!(aggregate(&spec, &twice, true), expected);
    }
}

fn spec_method(spec: &MethodSpec) -> &'static fl_server::model::OptimizerMethod {
    optimizer::METHODS
        .iter()
        .find(|method| method.info.name == spec.name())
        .unwrap()
}
