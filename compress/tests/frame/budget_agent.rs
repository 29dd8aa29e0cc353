//! An agent chooses the budget of each frame: `budget = { by = "bandit", .. }`.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

const SPEC: &str = "memory = 'none'\ndefault = { quantize = { dead_zone = {} }, code = 'context' }\n";
const RANGE: &str = "budget = { by = 'bandit', least = '0.25 bits', most = '4 bits', worth = 0.3, seed = 5 }";

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([("a.weight", vec![160, 250]), ("b.bias", vec![40])]).unwrap())
}

fn encoder(budget: &str) -> Encoder {
    Encoder::new(layout(), &from_toml(&format!("{SPEC}{budget}"))).unwrap()
}

/// The next frame of a sequence of updates of one distribution.
fn next(encoder: &mut Encoder, round: u64, given: EncodeOptions<'_>) -> Pending {
    let mut delta = noise(layout().len(), round + 1);
    delta.iter_mut().for_each(|value| *value = value.powi(3));
    let header = FrameHeader { round, ..UPDATE };
    let pending = encoder.encode_with(given, &mut delta, header).unwrap();
    encoder.settle(&pending, Ack::Accepted).unwrap();
    pending
}

fn frames(budget: &str, count: u64, given: EncodeOptions<'_>) -> Vec<Pending> {
    let mut encoder = encoder(budget);
    (0..count).map(|round| next(&mut encoder, round, given)).collect()
}

/// Energy kept of the whole frame, whose first section has nearly all of it, less `worth` times its bits per value.
fn reward(pending: &Pending) -> f64 {
    let bits = pending.frame.len() as f64 * 8.0 / layout().len() as f64;
    f64::from(pending.fidelity[0].kept) - 0.3 * bits
}

#[test]
fn frames_have_the_chosen_bytes_and_nearly_the_reward_of_the_best() {
    let frames = frames(RANGE, 80, EncodeOptions::default());
    let arms: Vec<u64> = [0.25, 0.5, 1.0, 2.0, 4.0]
        .map(|bits: f64| (bits * layout().len() as f64 / 8.0) as u64)
        .to_vec();
    for (at, pending) in frames.iter().enumerate() {
        let asked = pending.asked.unwrap();
        assert!(arms.contains(&asked), "{asked}");
        if at < arms.len() {
            assert_eq!(asked, arms[at], "every arm is tried once");
        }
        let bytes = pending.frame.len() as u64;
        assert!(bytes <= asked && bytes * 100 >= asked * 97, "{bytes} of {asked}");
    }
    let rewards: Vec<f64> = frames.iter().map(reward).collect();
    let best = rewards[..5].iter().fold(f64::MIN, |best, reward| best.max(*reward));
    let worst = rewards[..5].iter().fold(f64::MAX, |worst, reward| worst.min(*reward));
    let mean = rewards[20..].iter().sum::<f64>() / 60.0;
    assert!((best - mean) / (best - worst) < 0.15, "{mean} of {best} and {worst}");
}

#[test]
fn the_same_seed_chooses_the_same_bytes_and_another_seed_others() {
    let bytes = |budget: &str| -> Vec<Vec<u8>> {
        let frames = frames(budget, 40, EncodeOptions::default()).into_iter();
        frames.map(|pending| pending.frame).collect()
    };
    assert_eq!(bytes(RANGE), bytes(RANGE));
    let explores = |seed| format!("budget = '0.25 to 4 bits by bandit, explore 0.5, seed {seed}'");
    assert_ne!(bytes(&explores(1)), bytes(&explores(2)));
}

#[test]
fn a_smaller_budget_that_is_handed_out_holds_and_a_larger_one_changes_nothing() {
    let of = |budget, most| {
        let given = EncodeOptions {
            budget,
            most,
            ..EncodeOptions::default()
        };
        frames(RANGE, 12, given)
    };
    let free = of(None, None);
    let same = of(Some(1_000_000), Some(1_000_000));
    assert!(free.iter().zip(&same).all(|(free, same)| free.frame == same.frame));
    for (budget, most) in [(Some(2000), None), (None, Some(2000)), (Some(2000), Some(4500))] {
        for pending in of(budget, most) {
            let asked = pending.asked.unwrap();
            let bytes = pending.frame.len() as u64;
            assert!(
                asked <= 2000 && bytes <= asked && bytes * 100 >= asked * 97,
                "{bytes} of {asked}"
            );
        }
    }
}

#[test]
fn a_loaded_state_goes_on_as_if_nothing_had_happened() {
    let (mut whole, mut before) = (encoder(RANGE), encoder(RANGE));
    for round in 0..9 {
        next(&mut whole, round, EncodeOptions::default());
        next(&mut before, round, EncodeOptions::default());
    }
    let mut state = Vec::new();
    before.save(None, &mut state);
    let load = |budget: &str| Encoder::load(layout(), &from_toml(&format!("{SPEC}{budget}")), &state);
    let (mut after, _) = load(RANGE).unwrap();
    for round in 9..30 {
        let expected = next(&mut whole, round, EncodeOptions::default());
        assert_eq!(next(&mut after, round, EncodeOptions::default()), expected);
    }
    let other = load("budget = '0.25 to 4 bits by bandit, seed 6'")
        .unwrap_err()
        .to_string();
    assert!(
        other.contains("`budget` began with seed 5, the spec requires 6"),
        "{other}"
    );
    assert!(load("budget = '1 bits'").is_ok(), "another budget needs no agent");
    for len in 0..state.len() {
        assert!(Encoder::load(layout(), &from_toml(&format!("{SPEC}{RANGE}")), &state[..len]).is_err());
    }
}

#[test]
fn zeros_and_a_frame_that_fails_are_not_chosen_for() {
    let mut encoder = encoder(RANGE);
    let state = |encoder: &Encoder| {
        let mut state = Vec::new();
        encoder.save(None, &mut state);
        state
    };
    let first = state(&encoder);
    let mut broken = noise(layout().len(), 1);
    broken[7] = f32::NAN;
    assert!(encoder.encode(&mut broken, UPDATE).is_err());
    assert_eq!(state(&encoder), first);
    let pending = encoder.encode(&mut vec![0.0; layout().len()], UPDATE).unwrap();
    encoder.settle(&pending, Ack::Accepted).unwrap();
    let asked = next(&mut encoder, 1, EncodeOptions::default()).asked;
    assert_eq!(
        asked,
        frames(RANGE, 1, EncodeOptions::default())[0].asked,
        "the first arm"
    );
}
