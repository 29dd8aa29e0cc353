//! Codecs between which the encoder chooses for each tensor.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

const EITHER: &str = "memory = 'error-feedback'
    default = { reduce = { top_k = 0.02 }, quantize = { uniform = 6 }, code = 'rice', or = { quantize = 'sign' } }";

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([("flat", vec![40, 50]), ("peaked", vec![2000])]).unwrap())
}

/// One tensor of two magnitudes, and one whose energy is in a few values.
fn update(round: u64) -> Vec<f32> {
    let mut values = noise(4000, round);
    let (flat, peaked) = values.split_at_mut(2000);
    flat.iter_mut().for_each(|value| *value = value.signum());
    peaked.iter_mut().for_each(|value| *value = value.powi(31) * 1e3);
    values
}

fn recipes(frame: &[u8]) -> Vec<String> {
    let layout = layout();
    let frame = Frame::parse(frame, &layout).unwrap();
    frame
        .sections()
        .map(|section| section.recipe.quantize.name().to_owned())
        .collect()
}

/// Bytes of the frame of a spec, and the share of the energy that each section keeps.
fn outcome(spec: &str) -> (Vec<u8>, Vec<f32>) {
    let mut encoder = Encoder::new(layout(), &from_toml(spec)).unwrap();
    let pending = encoder.encode(&mut update(1), UPDATE).unwrap();
    let kept = pending.fidelity.iter().map(|section| section.kept).collect();
    (pending.frame, kept)
}

#[test]
fn flat_tensors_are_quantized_and_peaked_ones_sparsified_in_one_frame() {
    let (frame, kept) = outcome(EITHER);
    assert_eq!(recipes(&frame), ["sign", "uniform"]);
    assert!(kept.iter().all(|kept| *kept > 0.9), "{kept:?}");
    // Either codec alone loses most of one tensor, or takes many more bytes for it.
    let alone = |method: &str| outcome(&format!("memory = 'error-feedback'\ndefault = {{ {method} }}"));
    let (_, sparse) = alone("reduce = { top_k = 0.02 }, quantize = { uniform = 6 }, code = 'rice'");
    let (_, signs) = alone("quantize = 'sign'");
    assert!(sparse[0] < 0.1 && signs[1] < 0.2, "{sparse:?} {signs:?}");
}

#[test]
fn frames_of_a_choice_are_equal_on_any_number_of_threads_and_lose_nothing() {
    let mut encoders = [1, 3].map(|threads| {
        let mut encoder = Encoder::new(layout(), &from_toml(EITHER)).unwrap();
        encoder.set_threads(threads);
        encoder
    });
    let mut sums = [vec![0.0f64; 4000], vec![0.0; 4000]];
    for round in 0..6 {
        let frames = encoders.each_mut().map(|encoder| {
            let pending = encoder
                .encode(&mut update(round), FrameHeader { round, ..UPDATE })
                .unwrap();
            encoder.settle(&pending, Ack::Accepted).unwrap();
            pending.frame
        });
        assert_eq!(frames[0], frames[1]);
        let decoded = decode(&layout(), &frames[0]);
        for (at, value) in update(round).into_iter().enumerate() {
            sums[0][at] += f64::from(value);
            sums[1][at] += f64::from(decoded[at]);
        }
    }
    let residual = encoders[0].residual().unwrap();
    for at in 0..4000 {
        let left = sums[0][at] - sums[1][at] - f64::from(residual[at]);
        assert!(left.abs() < 1e-3, "{at}: {left}");
    }
}

#[test]
fn a_choice_under_a_budget_is_refused_and_values_that_are_not_finite_change_nothing() {
    let spec = Spec {
        budget: Some(Budget::Bits(1.0)),
        ..from_toml(EITHER)
    };
    let refusal = Encoder::new(layout(), &spec).unwrap_err().to_string();
    assert!(refusal.contains("`or` chooses between codecs"), "{refusal}");
    let mut encoder = Encoder::new(layout(), &from_toml(EITHER)).unwrap();
    let saved = |encoder: &Encoder| {
        let mut bytes = Vec::new();
        encoder.save(None, &mut bytes);
        bytes
    };
    let before = saved(&encoder);
    let mut bad = update(0);
    bad[3] = f32::NAN;
    assert!(matches!(encoder.encode(&mut bad, UPDATE), Err(Error::NotFinite(_))));
    assert_eq!(saved(&encoder), before);
    for value in [0.0, f32::MAX, f32::from_bits(1)] {
        let mut encoder = Encoder::new(layout(), &from_toml(EITHER)).unwrap();
        assert!(encoder.encode(&mut vec![value; 4000], UPDATE).is_ok(), "{value:e}");
    }
}

#[test]
fn under_a_limit_that_is_handed_out_the_chosen_codecs_stay() {
    let mut encoder = Encoder::new(layout(), &from_toml(EITHER)).unwrap();
    let given = EncodeOptions {
        most: Some(450),
        ..EncodeOptions::default()
    };
    let pending = encoder.encode_with(given, &mut update(1), UPDATE).unwrap();
    assert!(pending.frame.len() <= 450, "{}", pending.frame.len());
    assert_eq!(recipes(&pending.frame), ["sign", "uniform"]);
}
