//! Rounded models: model updates that round, and snapshots that code levels.

use std::sync::Arc;

use fl_compress::*;

use crate::{UPDATE, bits, from_toml, reseal};

const STEP: FrameHeader = FrameHeader {
    kind: FrameKind::ModelUpdate,
    ..UPDATE
};

/// Trained tensors, one of them zero, a buffer and a counter.
fn layout() -> Arc<Layout> {
    let tensor = |name: &str, shape: &[usize], dtype, role| TensorSpec::new(name, shape, dtype, role);
    let tensors = [
        tensor("a.bias", &[5], Dtype::F32, Role::Trained),
        tensor("a.weight", &[40, 30], Dtype::F32, Role::Trained),
        tensor("b.weight", &[7, 9], Dtype::F32, Role::Trained),
        tensor("running_mean", &[6], Dtype::F32, Role::Buffer),
        tensor("seen", &[], Dtype::I64, Role::Counter),
    ];
    Arc::new(Layout::of(tensors).unwrap())
}

fn model(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        (state >> 40) as f32 / 16_777_216.0
    };
    let layout = layout();
    let mut values: Vec<f32> = (0..layout.len())
        .map(|_| (unit() + unit() + unit() - 1.5) * 0.1)
        .collect();
    values[..5].fill(0.0);
    values[layout.counters()].fill(77.0);
    values
}

fn rounding(bits: u8) -> ModelRounding {
    ModelRounding::try_from(bits).unwrap()
}

fn rounded(of: u8, seed: u64) -> Vec<f32> {
    let mut values = model(seed);
    rounding(of).round(&layout(), &mut values);
    values
}

fn applied(frame: &[u8], onto: &[f32]) -> Vec<f32> {
    let (layout, mut out) = (layout(), onto.to_vec());
    Frame::parse(frame, &layout).unwrap().apply(&mut out).unwrap();
    out
}

#[test]
fn a_snapshot_of_a_rounded_model_is_short_and_has_its_bits() {
    let layout = layout();
    let exact = snapshot(&layout, &model(1), 9).unwrap().len();
    for (of, most) in [(4, 4.2), (8, 8.2), (12, 12.2), (16, 16.2)] {
        let values = rounded(of, 1);
        let frame = rounded_snapshot(&layout, &values, 9, 1).unwrap();
        assert_eq!(bits(&applied(&frame, &vec![7.0; layout.len()])), bits(&values));
        let saved = exact - frame.len();
        let coded = 4.0 * layout.trained().len() as f64 - saved as f64;
        let bits_a_value = 8.0 * coded / layout.trained().len() as f64;
        assert!(bits_a_value < most, "{of} bits take {bits_a_value}");
        for threads in [2, 3, 8] {
            assert_eq!(rounded_snapshot(&layout, &values, 9, threads).unwrap(), frame);
        }
    }
}

#[test]
fn a_snapshot_of_any_other_model_has_the_exact_values() {
    let layout = layout();
    let mut values = model(2);
    let same = |values: &[f32]| {
        assert_eq!(rounded_snapshot(&layout, values, 9, 2), snapshot(&layout, values, 9));
    };
    values[..5].fill(-0.0);
    same(&values);
    values[3] = f32::NAN;
    same(&values);
    same(&values[1..]);
}

#[test]
fn a_negative_zero_in_a_tensor_of_levels_keeps_its_sign() {
    let layout = layout();
    let mut values = rounded(8, 3);
    values[20] = -0.0;
    let frame = rounded_snapshot(&layout, &values, 9, 1).unwrap();
    assert_eq!(bits(&applied(&frame, &values)), bits(&values));
}

#[test]
fn a_cut_or_changed_snapshot_is_refused() {
    let layout = layout();
    let frame = rounded_snapshot(&layout, &rounded(8, 4), 9, 1).unwrap();
    for cut in 0..frame.len() {
        assert!(Frame::parse(&frame[..cut], &layout).is_err(), "{cut}");
    }
    for bit in 0..frame.len() * 8 {
        let mut changed = frame.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Frame::parse(&changed, &layout).is_err(), "{bit}");
        // With a right checksum: refused, or finite values.
        let changed = reseal(changed);
        let mut out = vec![0.0; layout.len()];
        if let Ok(frame) = Frame::parse(&changed, &layout)
            && frame.apply(&mut out).is_ok()
        {
            assert!(out.iter().all(|value| value.is_finite()), "{bit}");
        }
    }
}

/// A server's encoder, and its pending frame of `update`.
fn encoded(spec: &str, update: &[f32], of: Option<u8>) -> (Encoder, Pending) {
    let mut encoder = Encoder::new(layout(), &from_toml(spec)).unwrap();
    let given = EncodeOptions {
        rounding: of.map(rounding),
        ..EncodeOptions::default()
    };
    let pending = encoder.encode_with(given, &mut update.to_vec(), STEP).unwrap();
    encoder.settle(&pending, Ack::Accepted).unwrap();
    (encoder, pending)
}

const SPARSE: &str = "memory = 'error-feedback'\ndefault = { quantize = 'dead_zone', code = 'context' }";

#[test]
fn a_model_update_says_that_the_sum_is_rounded_and_the_error_goes_to_the_residual() {
    let (layout, held, update) = (layout(), model(5), model(6));
    let (_, plain) = encoded(SPARSE, &update, None);
    let (mut encoder, pending) = encoded(SPARSE, &update, Some(6));
    assert_eq!(pending.frame.len(), plain.frame.len() + 1, "one byte says how");
    let frame = Frame::parse(&pending.frame, &layout).unwrap();
    assert_eq!(frame.rounding(), Some(rounding(6)));
    let mut sum = held.clone();
    frame.accumulate(1.0, &mut sum).unwrap();
    let mut expected = sum.clone();
    rounding(6).round(&layout, &mut expected);
    let model = applied(&pending.frame, &held);
    assert_eq!(bits(&model), bits(&expected));
    assert_ne!(bits(&model), bits(&sum));
    assert_eq!(bits(&applied(&plain.frame, &held)), bits(&sum));

    let removed: Vec<f32> = sum.iter().zip(&model).map(|(sum, model)| sum - model).collect();
    let before = encoder.residual().unwrap().to_vec();
    encoder.keep_back(&removed).unwrap();
    let residual = encoder.residual().unwrap();
    for at in layout.trained() {
        assert_eq!(residual[at], before[at] + removed[at]);
        let (given, kept) = (held[at] + update[at], model[at] + residual[at]);
        assert!((given - kept).abs() <= 1e-6 * given.abs().max(0.01), "{given} {kept}");
    }
    assert!(residual[layout.trained().end..].iter().all(|&value| value == 0.0));
}

#[test]
fn without_a_residual_the_error_is_lost() {
    let spec = "memory = 'none'\ndefault = { quantize = { uniform = { bits = 4, rounding = 'stochastic' } } }";
    let (mut encoder, _) = encoded(spec, &model(7), Some(8));
    encoder.keep_back(&model(8)).unwrap();
    assert_eq!(encoder.residual(), None);
}

#[test]
fn only_a_model_update_rounds_and_only_by_bits_in_range() {
    let layout = layout();
    let mut encoder = Encoder::new(Arc::clone(&layout), &from_toml(SPARSE)).unwrap();
    let given = EncodeOptions {
        rounding: Some(rounding(8)),
        ..EncodeOptions::default()
    };
    let refused = encoder.encode_with(given, &mut model(9), UPDATE);
    assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
    let pending = encoder.encode_with(given, &mut model(9), STEP).unwrap();
    let refused = encoder.keep_back(&model(9));
    assert!(matches!(refused, Err(Error::Usage(_))), "a frame is pending");
    encoder.settle(&pending, Ack::Accepted).unwrap();
    assert!(matches!(encoder.keep_back(&[0.0]), Err(Error::Usage(_))));

    let changed = |at: usize, byte: u8| {
        let mut frame = pending.frame.clone();
        frame[at] = byte;
        Frame::parse(&reseal(frame), &layout).map(drop)
    };
    // After 34 bytes of header, as nothing is merged and no predictor is named.
    assert_eq!(pending.frame[34], 8);
    assert_eq!(changed(34, 20), Ok(()));
    for (at, byte) in [(34, 3), (34, 21), (34, 255), (6, 0), (6, 2), (7, 8 | 4)] {
        assert!(matches!(changed(at, byte), Err(Error::Corrupt { .. })), "{at} {byte}");
    }
    let update = encoder.encode(&mut model(9), UPDATE).unwrap();
    let applied = Frame::parse(&update.frame, &layout).unwrap().apply(&mut model(9));
    assert!(
        matches!(applied, Err(Error::Mismatch(_))),
        "a client's update makes no version"
    );
}
