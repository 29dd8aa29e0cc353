//! `--state`: the memory of the encoder between calls.

use std::sync::Arc;

use fl_compress::{Ack, Archive, Encoder, FrameHeader, FrameKind};

use super::{Place, SPEC, layout, values};

#[test]
fn calls_with_a_state_are_one_encoder() {
    let place = Place::new();
    let layout = Arc::new(layout());
    let mut encoder = Encoder::new(Arc::clone(&layout), &toml::from_str(SPEC).unwrap()).unwrap();
    for round in 0..5 {
        let mut delta = values(10 + round);
        place.write_values("delta.safetensors", &delta);
        place.ok("encode --spec spec.toml --seed 7 --state memory delta.safetensors out.flz");
        let header = FrameHeader {
            kind: FrameKind::Update,
            round,
            seed: 7 + round,
        };
        let pending = encoder.encode(&mut delta, header).unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        assert_eq!(
            place.read("out.flz"),
            Archive::write(&layout, &pending.frame, &[]),
            "round {round}"
        );
    }
}

#[test]
fn the_round_goes_on_from_the_one_given() {
    let place = Place::new();
    let says = |rest: &str| {
        place.ok(&format!(
            "encode --spec spec.toml --state memory {rest} new.safetensors out.flz"
        ))
    };
    assert!(says("").contains("round 0;"));
    assert!(says("--round 9").contains("round 9;"));
    assert!(says("").contains("round 10;"));
}

#[test]
fn a_state_survives_an_output_that_cannot_be_written() {
    let place = Place::new();
    place.ok("encode --spec spec.toml --state memory old.safetensors out.flz");
    let before = place.read("memory");
    place.fails(
        1,
        "encode --spec spec.toml --state memory new.safetensors nowhere/out.flz",
    );
    assert_eq!(place.read("memory"), before);
}

#[test]
fn a_state_that_does_not_suit_is_refused() {
    let place = Place::new();
    place.ok("encode --spec spec.toml --state memory new.safetensors out.flz");
    let encode = "encode --spec spec.toml --state memory new.safetensors out.flz";
    let state = place.read("memory");
    for len in 0..state.len().min(64) {
        place.write("memory", &state[..len]);
        let code = place.run(encode).status.code().unwrap();
        assert!(code == 3 || code == 4, "{len} bytes: {code}");
    }
    for at in [
        0,
        4,
        5,
        6,
        13,
        14,
        18,
        40,
        state.len() / 2,
        state.len() - 5,
        state.len() - 1,
    ] {
        let mut state = state.clone();
        state[at] ^= 1;
        place.write("memory", &state);
        let code = place.run(encode).status.code().unwrap();
        assert!(code == 3 || code == 4, "byte {at}: {code}");
    }
    place.write("memory", &state);
    let other = fl_compress::Layout::new([("other", vec![2])]).unwrap();
    place.write(
        "other.safetensors",
        &fl_compress::weights::to_safetensors(&other, &[1.0, 2.0]).unwrap(),
    );
    let error = place.fails(3, "encode --spec spec.toml --state memory other.safetensors out.flz");
    assert!(
        error.contains("memory: does not match: the state belongs to another layout"),
        "{error}"
    );
    assert_eq!(place.read("memory"), state);
}
