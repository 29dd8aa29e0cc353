//! Runs that round versions: replicas, restarts, the residual, and the versions after a rollback.

use std::sync::Arc;

use fl_compress::{Digest, Frame, ModelRounding, Spec};
use fl_server::model::{GlobalModel, sum_frames};
use fl_server::plan::{RoundedVersions, RunPlan};

use crate::model::{Frames, compressed, layout, plan, values, without_limits};

fn rounding(bits: u8) -> ModelRounding {
    ModelRounding::try_from(bits).unwrap()
}

fn rounded(downlink: Spec, bits: u8, every: u64) -> RunPlan {
    RunPlan {
        rounded: Some(RoundedVersions {
            bits: rounding(bits),
            every,
        }),
        ..plan(downlink)
    }
}

#[test]
fn every_replica_rounds_to_the_server_s_bits_and_a_checkpoint_continues_with_them() {
    for downlink in [Spec::exact(), compressed()] {
        let (layout, mut frames, plan) = (layout(), Frames::default(), rounded(downlink, 8, 2));
        let initial = values(1, layout.len());
        let mut global = GlobalModel::initial(Arc::clone(&layout), initial.clone(), &plan).unwrap();
        let (mut mine, mut steps) = (initial, Vec::new());
        let first = global.snapshot().unwrap();
        let start = Digest::of(&first);
        frames.0.insert(start, first);
        for round in 1..=5 {
            let updates = frames.round(&layout, 3, round);
            // A restart before each round, on another number of threads.
            let mut again = GlobalModel::load(Arc::clone(&layout), &plan, &global.save()).unwrap();
            again.set_threads(3);
            let made = global.close(round, &updates, frames.read()).unwrap();
            assert_eq!(again.close(round, &updates, frames.read()).unwrap(), made);
            assert_eq!(again.save(), global.save(), "residual and all");

            let frame = Frame::parse(&made.frame, &layout).unwrap();
            let is_rounded = round % 2 == 0;
            assert_eq!(frame.rounding(), is_rounded.then_some(rounding(8)));
            frame.apply(&mut mine).unwrap();
            assert_eq!(Digest::of_f32(&mine), made.step.model);
            let mut twice = mine.clone();
            rounding(8).round(&layout, &mut twice);
            assert_eq!(twice == mine, is_rounded);
            let snapshot = global.snapshot().unwrap();
            assert_eq!(snapshot.len() < 2 * layout.len(), is_rounded, "{}", snapshot.len());
            let mut fresh = vec![0.5; layout.len()];
            Frame::parse(&snapshot, &layout).unwrap().apply(&mut fresh).unwrap();
            assert_eq!(Digest::of_f32(&fresh), made.step.model);

            frames.0.insert(made.step.frame, made.frame);
            steps.push(made.step.frame);
            let sum = sum_frames(&layout, &start, &steps, frames.read()).unwrap();
            assert_eq!(Digest::of_f32(&sum), made.step.model);
        }
    }
}

#[test]
fn what_rounding_removes_is_sent_later() {
    let (layout, mut frames) = (layout(), Frames::default());
    // Coarse, so that most of the update is below half a step.
    let plan = without_limits(rounded(compressed(), 4, 1));
    let initial = values(1, layout.len());
    let mut global = GlobalModel::initial(Arc::clone(&layout), initial.clone(), &plan).unwrap();
    let mut given = initial;
    for round in 1..=12 {
        let updates = frames.round(&layout, 3, round);
        let total: u64 = updates.iter().map(|update| update.examples).sum();
        for (i, update) in updates.iter().enumerate() {
            let weight = update.examples as f32 / total as f32;
            let delta = values(round * 1_000 + i as u64, layout.len());
            given
                .iter_mut()
                .zip(&delta)
                .for_each(|(sum, value)| *sum += weight * value);
        }
        global.close(round, &updates, frames.read()).unwrap();
    }
    let residual = global.residual().unwrap();
    for (at, given) in given.iter().enumerate() {
        let kept = global.model()[at] + residual[at];
        assert!(
            (given - kept).abs() < 1e-4,
            "value {at}: {given} was given, {kept} is there"
        );
    }
}

#[test]
fn a_model_at_the_end_of_the_range_stays_finite() {
    let (layout, mut frames, plan) = (layout(), Frames::default(), rounded(compressed(), 4, 1));
    let initial: Vec<f32> = (0..layout.len())
        .map(|at| if at % 2 == 0 { f32::MAX } else { -1.0 })
        .collect();
    let mut global = GlobalModel::initial(Arc::clone(&layout), initial, &plan).unwrap();
    for round in 1..=2 {
        let updates = frames.round(&layout, 3, round);
        global.close(round, &updates, frames.read()).unwrap();
        assert!(global.model().iter().all(|value| value.is_finite()));
    }
}

#[test]
fn a_plan_without_the_key_has_the_digest_that_it_had_and_one_with_it_another() {
    let text = |model: &str| crate::text(&[("model = \"init.safetensors\"\n", ""), ("[cohort]", model)]);
    let read = |model: &str| RunPlan::from_toml(&text(model), std::path::Path::new("/base"));
    let plain = read("[model]\nweights = 'init.safetensors'\n[cohort]").unwrap();
    assert_eq!(plain.digest(), crate::plan(&[]).digest());
    let of = |snapshot: &str| {
        read(&format!(
            "[model]\nweights = 'init.safetensors'\nsnapshot = {snapshot}\n[cohort]"
        ))
    };
    let with = of("{ bits = 12, every = 10 }").unwrap();
    assert_ne!(with.digest(), plain.digest());
    assert_ne!(with.digest(), of("{ bits = 12, every = 11 }").unwrap().digest());
    for (snapshot, why) in [
        ("{ bits = 30, every = 1 }", "4 to 20 bits a value, not 30"),
        ("{ bits = 12, every = 0 }", "`model.snapshot.every = 0`"),
        ("{ bits = 12 }", "missing field `every`"),
        ("12", "{ bits = 12, every = 10 }"),
    ] {
        let refused = of(snapshot).unwrap_err().to_string();
        assert!(refused.contains(why), "{snapshot}: {refused}");
    }
}
