//! Updates encoded against the last model update: their values, and that a restart reproduces them.

use std::sync::Arc;

use fl_compress::{Digest, Frame, Layout, Memory, Spec};
use fl_server::model::{GlobalModel, ModelError, RoundResult};
use fl_server::plan::RunPlan;
use fl_server::state_machine::{Contribution, PendingWork};

use crate::client;
use crate::model::{Frames, compressed, layout, plan, values};

const CLIENTS: usize = 5;
const ROUNDS: u64 = 4;

fn cafe() -> RunPlan {
    let mut plan = plan(compressed());
    plan.uplink.memory = Memory::Cafe;
    plan.rounds = ROUNDS;
    plan
}

fn initial(layout: &Arc<Layout>, plan: &RunPlan) -> GlobalModel {
    GlobalModel::initial(Arc::clone(layout), values(1, layout.len()), plan).unwrap()
}

/// Updates of a round; every second one is encoded against `step`, if there is one.
fn mixed(frames: &mut Frames, layout: &Arc<Layout>, round: u64, step: Option<&[u8]>) -> Vec<Contribution> {
    let update = |i: usize| {
        let delta = values(round * 1_000 + i as u64, layout.len());
        frames.update_against(step.filter(|_| i.is_multiple_of(2)), layout, i, round, &delta)
    };
    (0..CLIENTS).map(update).collect()
}

fn decoded(frame: &[u8], layout: &Layout) -> Vec<f32> {
    let mut values = vec![0.0; layout.len()];
    Frame::parse(frame, layout).unwrap().decode(&mut values).unwrap();
    values
}

/// A round of a live server: what is recorded of it, the state after it, and its model update.
struct LiveRound {
    work: PendingWork,
    saved: Vec<u8>,
    result: RoundResult,
}

fn live(frames: &mut Frames, layout: &Arc<Layout>) -> Vec<LiveRound> {
    let mut global = initial(layout, &cafe());
    let mut step: Option<Vec<u8>> = None;
    (1..=ROUNDS)
        .map(|round| {
            let updates = mixed(frames, layout, round, step.as_deref());
            let stepped = global.close(round, &updates, frames.read()).unwrap();
            frames.0.insert(stepped.step.frame, stepped.frame.clone());
            step = Some(stepped.frame.clone());
            LiveRound {
                work: PendingWork { round, updates },
                saved: global.save(),
                result: stepped,
            }
        })
        .collect()
}

#[test]
fn frames_with_and_without_a_predictor_average_to_what_was_learned() {
    let (layout, mut frames, mut plan) = (layout(), Frames::default(), cafe());
    plan.downlink = Spec::exact();
    let mut global = initial(&layout, &plan);
    let first = mixed(&mut frames, &layout, 1, None);
    let step = global.close(1, &first, frames.read()).unwrap();
    frames.0.insert(step.step.frame, step.frame.clone());
    let before = global.model().to_vec();
    let updates = mixed(&mut frames, &layout, 2, Some(&step.frame));
    global.close(2, &updates, frames.read()).unwrap();

    let total: u64 = updates.iter().map(|update| update.examples).sum();
    // The reference, bit for bit: adds the frames in the order of the clients, then the predictor once.
    let (mut average, mut learned) = (vec![0.0f32; layout.len()], vec![0.0f64; layout.len()]);
    let mut add = |weight: f64, values: &[f32]| {
        let weight = weight as f32;
        average
            .iter_mut()
            .zip(values)
            .for_each(|(acc, value)| *acc += weight * value);
    };
    let mut predicted = 0.0;
    for (i, update) in updates.iter().enumerate() {
        let share = update.examples as f64 / total as f64;
        add(share, &decoded(&frames.0[&update.frame], &layout));
        predicted += if i.is_multiple_of(2) {
            update.examples as f64
        } else {
            0.0
        };
        let delta = values(2_000 + i as u64, layout.len());
        learned
            .iter_mut()
            .zip(&delta)
            .for_each(|(sum, value)| *sum += share * f64::from(*value));
    }
    add(predicted / total as f64, &decoded(&step.frame, &layout));
    let expected: Vec<f32> = before.iter().zip(&average).map(|(model, step)| model + step).collect();
    assert_eq!(Digest::of_f32(&expected), global.digest());
    // The result is the average of the deltas of the clients.
    let close = average
        .iter()
        .zip(&learned)
        .all(|(found, learned)| (f64::from(*found) - learned).abs() < 1e-5);
    assert!(close, "{average:?} {learned:?}");
}

#[test]
fn a_restart_from_any_checkpoint_repeats_predicted_rounds_to_the_bit() {
    let (layout, mut frames, plan) = (layout(), Frames::default(), cafe());
    let rounds = live(&mut frames, &layout);
    let checkpoints = [initial(&layout, &plan).save()]
        .into_iter()
        .chain(rounds.iter().map(|round| round.saved.clone()));
    for (version, bytes) in checkpoints.enumerate() {
        let mut again = GlobalModel::load(Arc::clone(&layout), &plan, &bytes).unwrap();
        assert_eq!((again.version(), again.save()), (version as u64, bytes));
        for LiveRound { work, result, saved } in &rounds[version..] {
            again.replay(work, &result.step, frames.read()).unwrap();
            assert_eq!(&again.save(), saved, "round {}", work.round);
        }
    }
}

#[test]
fn the_order_of_predicted_updates_does_not_matter() {
    let (layout, mut frames) = (layout(), Frames::default());
    let rounds = live(&mut frames, &layout);
    let mut global = initial(&layout, &cafe());
    for LiveRound { work, result, .. } in rounds {
        let reversed: Vec<_> = work.updates.into_iter().rev().collect();
        assert_eq!(global.close(work.round, &reversed, frames.read()), Ok(result));
    }
}

#[test]
fn a_checkpoint_names_the_step_that_clients_encode_against_and_no_part_of_one_is_a_checkpoint() {
    let (layout, mut frames) = (layout(), Frames::default());
    let updates = mixed(&mut frames, &layout, 1, None);
    for plan in [plan(compressed()), cafe()] {
        let mut global = initial(&layout, &plan);
        let stepped = global.close(1, &updates, frames.read()).unwrap();
        let bytes = global.save();
        assert_eq!(bytes[4..6], [1, 0]);
        let names = |digest: &Digest| bytes.windows(32).any(|part| part == digest.0);
        assert_eq!(names(&stepped.step.frame), plan.uplink.memory == Memory::Cafe);
        assert_eq!(
            GlobalModel::load(Arc::clone(&layout), &plan, &bytes).unwrap().save(),
            bytes
        );
        for cut in 0..bytes.len() {
            assert!(GlobalModel::load(Arc::clone(&layout), &plan, &bytes[..cut]).is_err());
        }
    }
}

#[test]
fn a_frame_that_names_another_step_names_its_client_and_changes_nothing() {
    let (layout, mut frames) = (layout(), Frames::default());
    let rounds = live(&mut frames, &layout);
    let old = rounds[0].result.frame.clone();
    let mut global = GlobalModel::load(Arc::clone(&layout), &cafe(), &rounds[1].saved).unwrap();
    let updates = mixed(&mut frames, &layout, 3, Some(&old));
    let error = global.close(3, &updates, frames.read()).unwrap_err();
    assert!(
        matches!(&error, ModelError::Frame { client: of, why, .. } if *of == client(0) && why.contains("another model update")),
        "{error}"
    );
    let missing = frames.0.remove(&rounds[1].result.step.frame).unwrap();
    let updates = mixed(&mut frames, &layout, 3, Some(&missing));
    let error = global.close(3, &updates, frames.read()).unwrap_err();
    assert!(matches!(&error, ModelError::Predictor { round: 3, .. }), "{error}");
    assert_eq!(global.save(), rounds[1].saved);
    // Without prediction in the plan, no client may use it.
    let mut plain = initial(&layout, &plan(compressed()));
    let first = mixed(&mut frames, &layout, 1, Some(&missing));
    let error = plain.close(1, &first, frames.read()).unwrap_err();
    assert!(matches!(error, ModelError::Frame { round: 1, .. }), "{error}");
}
