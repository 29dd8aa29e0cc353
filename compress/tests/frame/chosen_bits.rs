//! Bits that a rule chooses for each tensor and frame.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

const LEARNED: &str = "memory = 'error-feedback'
    default = { quantize = { uniform = { bits = { by = 'learned', target = 2.5, seed = 3 } } }, code = 'rans' }";

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
fn a_network_of_another_seed_or_version_is_refused() {
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
    // The version is the first byte after what an encoder with a constant has saved.
    let constant = from_toml("memory = 'error-feedback'\ndefault = { quantize = { uniform = 4 } }");
    let (plain, _) = Encoder::load(layout(), &constant, &saved(&encoder)).unwrap();
    let at = saved(&plain).len() - 4;
    let bytes = saved(&encoder);
    assert_eq!(bytes[at], 1);
    let version = [&bytes[..at], &[2], &bytes[at + 1..bytes.len() - 4], &[0; 4]].concat();
    let version = load(LEARNED, &reseal(version)).unwrap_err();
    assert!(version.to_string().contains("version 2"), "{version}");
}

#[test]
fn values_that_are_not_finite_teach_nothing() {
    let mut encoder = Encoder::new(layout(), &from_toml(LEARNED)).unwrap();
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
        let mut encoder = Encoder::new(layout(), &from_toml(LEARNED)).unwrap();
        for round in 0..3 {
            let mut delta = vec![value; 4500];
            delta[0] = 1.0;
            let pending = encoder.encode(&mut delta, FrameHeader { round, ..UPDATE }).unwrap();
            encoder.settle(&pending, Ack::Dropped).unwrap();
        }
    }
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
        ("2.5", "uniform takes 1 to 8 bits, not 2.5"),
        ("{ by = 'oracle' }, norm = 'l2'", "mean magnitude"),
    ] {
        let refusal = refusal(bits);
        assert!(refusal.contains(expected), "{bits}\n{refusal}");
    }
    let text = "default = { quantize = { uniform = { bits = { by = 'learned', target = 1.5, seed = 7 } } } }";
    let spec = from_toml(text);
    assert_eq!(from_toml(&toml::to_string(&spec).unwrap()), spec);
    let two = "default = { quantize = { uniform = { bits = { by = 'oracle' } } } }
        rules = [{ when = { name = 'a' }, use = { quantize = { uniform = { bits = { by = 'learned' } } } } }]";
    let refused = Encoder::new(layout(), &from_toml(two)).unwrap_err();
    assert!(refused.to_string().contains("must have the same rule"), "{refused}");
}
