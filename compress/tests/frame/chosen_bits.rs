//! Bits that a rule chooses for each tensor and frame.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

const LEARNED: &str = "memory = 'error-feedback'
    default = { quantize = { uniform = { bits = { by = 'learned', target = 2.5, seed = 3 } } }, code = 'rans' }";

const BANDIT: &str = "memory = 'error-feedback'
    default = { quantize = { uniform = { bits = { by = 'bandit', seed = 3 } } }, code = 'rans' }";

fn layout() -> Arc<Layout> {
    let tensors = [("a", vec![40, 50]), ("b", vec![1500]), ("c", vec![10, 100])];
    Arc::new(Layout::new(tensors).unwrap())
}

/// Values whose scale and tail differ by tensor.
fn update(round: u64) -> Vec<f32> {
    let layout = layout();
    let mut values = noise(layout.len(), round);
    for (tensor, scale) in layout.tensors().iter().zip([1.0, 0.1, 8.0]) {
        let own = &mut values[tensor.offset..tensor.offset + tensor.len];
        own.iter_mut().for_each(|value| *value = value.powi(3) * scale);
    }
    values
}

/// Frame after frame, all accepted.
fn frames(encoder: &mut Encoder, rounds: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    let frame = |round| {
        let pending = encoder
            .encode(&mut update(round), FrameHeader { round, ..UPDATE })
            .unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        pending.frame
    };
    rounds.map(frame).collect()
}

fn saved(encoder: &Encoder) -> Vec<u8> {
    let mut bytes = Vec::new();
    encoder.save(None, &mut bytes);
    bytes
}

#[test]
fn what_was_learned_survives_a_restart_and_does_not_depend_on_threads() {
    let mut encoder = Encoder::new(layout(), &from_toml(LEARNED)).unwrap();
    let mut expected = frames(&mut encoder, 0..6);
    let mut other = Encoder::new(layout(), &from_toml(LEARNED)).unwrap();
    other.set_threads(3);
    assert_eq!(frames(&mut other, 0..6), expected);
    assert_eq!(saved(&other), saved(&encoder));
    let (mut restarted, _) = Encoder::load(layout(), &from_toml(LEARNED), &saved(&encoder)).unwrap();
    expected = frames(&mut encoder, 6..12);
    assert_eq!(frames(&mut restarted, 6..12), expected);
    assert_eq!(saved(&restarted), saved(&encoder));
}

#[test]
fn a_network_of_another_seed_is_refused() {
    let mut encoder = Encoder::new(layout(), &from_toml(LEARNED)).unwrap();
    frames(&mut encoder, 0..3);
    let load = |spec: &str, bytes: &[u8]| Encoder::load(layout(), &from_toml(spec), bytes).map(|_| ());
    let seed = load(&LEARNED.replace("seed = 3", "seed = 4"), &saved(&encoder)).unwrap_err();
    assert!(
        matches!(seed, Error::Mismatch(_)) && seed.to_string().contains("seed 3"),
        "{seed}"
    );
    // Another target, an oracle, and no rule keep what they can.
    for spec in [
        LEARNED.replace("target = 2.5", "target = 1"),
        LEARNED.replace("by = 'learned', target = 2.5, seed = 3", "by = 'oracle'"),
        "memory = 'error-feedback'\ndefault = { quantize = { uniform = 4 } }".to_owned(),
    ] {
        assert_eq!(load(&spec, &saved(&encoder)), Ok(()), "{spec}");
    }
}

#[test]
fn values_that_are_not_finite_teach_nothing() {
    for rule in [LEARNED, BANDIT] {
        let mut encoder = Encoder::new(layout(), &from_toml(rule)).unwrap();
        frames(&mut encoder, 0..3);
        let before = saved(&encoder);
        for bad in [f32::NAN, f32::INFINITY] {
            let mut delta = update(3);
            delta[7] = bad;
            assert!(matches!(encoder.encode(&mut delta, UPDATE), Err(Error::NotFinite(_))));
            assert_eq!(saved(&encoder), before);
        }
        // Extreme values and zeros are encoded.
        for value in [0.0, f32::MAX / 4.0, f32::from_bits(1)] {
            let mut encoder = Encoder::new(layout(), &from_toml(rule)).unwrap();
            for round in 0..3 {
                let mut delta = vec![value; 4500];
                delta[0] = 1.0;
                let pending = encoder.encode(&mut delta, FrameHeader { round, ..UPDATE }).unwrap();
                encoder.settle(&pending, Ack::Dropped).unwrap();
            }
        }
    }
}

/// Bits that a section of each frame has, as `Debug` of its recipe's quantizer.
fn chosen(frames: &[Vec<u8>], section: usize) -> Vec<String> {
    let layout = layout();
    let quantizer = |frame: &Vec<u8>| {
        let frame = Frame::parse(frame, &layout).unwrap();
        format!("{:?}", frame.sections().nth(section).unwrap().recipe.quantize)
    };
    frames.iter().map(quantizer).collect()
}

/// Without memory, so that every frame of a kind has about the same reward: the bandit is compared with the best
/// constant.
#[test]
fn a_bandit_finds_the_bits_of_the_best_constant() {
    let spec = |bits: &str| {
        from_toml(&format!(
            "memory = 'none'\ndefault = {{ quantize = {{ uniform = {{ bits = {bits} }} }}, code = 'rans' }}"
        ))
    };
    // Mean reward of the first section in frames from 12 on: energy kept less 0.1 for each bit per value.
    let reward = |bits: &str| {
        let mut encoder = Encoder::new(layout(), &spec(bits)).unwrap();
        let mut sum = 0.0;
        for round in 0..60 {
            let pending = encoder
                .encode(&mut update(round), FrameHeader { round, ..UPDATE })
                .unwrap();
            let bytes = Frame::parse(&pending.frame, &layout())
                .unwrap()
                .sections()
                .next()
                .unwrap()
                .bytes
                .total();
            if round >= 12 {
                sum += f64::from(pending.fidelity[0].kept) - 0.1 * 8.0 * bytes as f64 / 2000.0;
            }
            encoder.settle(&pending, Ack::Accepted).unwrap();
        }
        sum / 48.0
    };
    let constants = [1, 2, 3, 4, 6, 8].map(|bits| reward(&bits.to_string()));
    let best = constants.iter().copied().fold(f64::MIN, f64::max);
    let worst = constants.iter().copied().fold(f64::MAX, f64::min);
    let found = reward("{ by = 'bandit', worth = 0.1, seed = 2 }");
    // A tenth of the frames explores.
    assert!(found >= best - 0.15 * (best - worst), "{found} of {constants:?}");
}

#[test]
fn a_bandit_survives_a_restart_and_does_not_depend_on_threads() {
    let mut encoder = Encoder::new(layout(), &from_toml(BANDIT)).unwrap();
    let mut expected = frames(&mut encoder, 0..10);
    assert_eq!(
        chosen(&expected[..6], 0),
        chosen(&expected[..6], 2),
        "each choice is tried once"
    );
    assert_eq!(
        chosen(&expected[..6], 0)
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        6
    );
    let mut other = Encoder::new(layout(), &from_toml(BANDIT)).unwrap();
    other.set_threads(3);
    assert_eq!(frames(&mut other, 0..10), expected);
    assert_eq!(saved(&other), saved(&encoder));
    let (mut restarted, _) = Encoder::load(layout(), &from_toml(BANDIT), &saved(&encoder)).unwrap();
    expected = frames(&mut encoder, 10..30);
    assert_eq!(frames(&mut restarted, 10..30), expected);
    assert_eq!(saved(&restarted), saved(&encoder));
}

#[test]
fn a_bandit_of_another_seed_or_damage_is_refused() {
    let density = "memory = 'none'\ndefault = { reduce = { top_k = { density = { by = 'bandit', seed = 3 } } } }";
    // Bytes after the outcome of the last section: no budget, no pending frame, and the memory; or no factor, ratio and age of the
    // section, no bits, no budget, no pending frame.
    for (spec, of, after) in [(BANDIT, "bits", 2 + 4 * layout().len()), (density, "density", 13)] {
        let mut encoder = Encoder::new(layout(), &from_toml(spec)).unwrap();
        frames(&mut encoder, 0..3);
        let bytes = saved(&encoder);
        let load = |spec: &str, bytes: &[u8]| Encoder::load(layout(), &from_toml(spec), bytes).map(|_| ());
        let seed = load(&spec.replace("seed = 3", "seed = 4"), &bytes).unwrap_err();
        let expected = format!("`{of}` began with seed 3, the spec requires 4; start with a new state");
        assert!(
            matches!(seed, Error::Mismatch(_)) && seed.to_string().contains(&expected),
            "{seed}"
        );
        assert_eq!(load(&spec.replace("seed = 3", "worth = 0.5, seed = 3"), &bytes), Ok(()));
        assert_eq!(load("memory = 'none'\ndefault = {}", &bytes), Ok(()));
        for len in 0..bytes.len() {
            assert!(load(spec, &bytes[..len]).is_err());
        }
        let mut bad = bytes.clone();
        let end = bad.len() - 4 - after;
        bad[end - 8..end].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(matches!(load(spec, &reseal(bad)), Err(Error::NotFinite(_))), "{of}");
    }
    // Other rules for bits ignore what a bandit has learned, and the other way around.
    let mut encoder = Encoder::new(layout(), &from_toml(BANDIT)).unwrap();
    frames(&mut encoder, 0..3);
    assert!(Encoder::load(layout(), &from_toml(LEARNED), &saved(&encoder)).is_ok());
    let mut encoder = Encoder::new(layout(), &from_toml(LEARNED)).unwrap();
    frames(&mut encoder, 0..3);
    assert!(Encoder::load(layout(), &from_toml(BANDIT), &saved(&encoder)).is_ok());
}

#[test]
fn forms_are_refused_by_name() {
    let refusal = |bits: &str| {
        let text = format!("default = {{ quantize = {{ uniform = {{ bits = {bits} }} }} }}");
        toml::from_str::<Spec>(&text).unwrap_err().to_string()
    };
    for (bits, expected) in [
        (
            "{ by = 'oracel' }",
            r#"unknown rule "oracel", expected a number of bits from 1 to 8"#,
        ),
        (
            "{ by = 'oracle', target = 9 }",
            "`target` must be from 0.001 to 8, not 9",
        ),
        ("{ by = 'oracle', seed = 1 }", "`seed` is not a parameter of"),
        (
            "{ by = 'learned', seed = 0.5 }",
            "`seed` must be a whole number, not 0.5",
        ),
        ("{ by = 'learned', density = 0.5 }", "`density` is not a parameter of"),
        (
            "{ by = 'bandit', target = 2 }",
            "`target` is not a parameter of { by = \"bandit\" }",
        ),
        (
            "{ by = 'bandit', worth = -1 }",
            "`worth` must be from 0 to 1000, not -1",
        ),
        ("2.5", "uniform takes 1 to 8 bits, not 2.5"),
        ("{ by = 'oracle' }, norm = 'l2'", "mean magnitude"),
    ] {
        let refusal = refusal(bits);
        assert!(refusal.contains(expected), "{bits}\n{refusal}");
    }
    for rule in [
        "by = 'learned', target = 1.5, seed = 7",
        "by = 'bandit', worth = 0.5, explore = 0.25, seed = 7",
    ] {
        let spec = from_toml(&format!(
            "default = {{ quantize = {{ uniform = {{ bits = {{ {rule} }} }} }} }}"
        ));
        assert_eq!(from_toml(&toml::to_string(&spec).unwrap()), spec);
    }
    let two = "default = { quantize = { uniform = { bits = { by = 'oracle' } } } }
        rules = [{ when = { name = 'a' }, use = { quantize = { uniform = { bits = { by = 'learned' } } } } }]";
    let refused = Encoder::new(layout(), &from_toml(two)).unwrap_err();
    assert!(refused.to_string().contains("must have the same rule"), "{refused}");
}
