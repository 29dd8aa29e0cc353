//! Properties of every method for any input.

use std::sync::Arc;

use fl_compress::*;
use proptest::prelude::*;
use proptest::sample::select;

use crate::*;

/// Values of one tensor: any finite magnitudes, few distinct ones, or mostly zeros.
fn values() -> impl Strategy<Value = Vec<f32>> {
    let any = prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO;
    let bounded = any.prop_map(|value| value % 1e30);
    let sparse = (0..20i8).prop_map(|value| f32::from((value - 17).max(0)));
    prop_oneof![
        prop::collection::vec(bounded, 1..600),
        prop::collection::vec((-3..=3i8).prop_map(f32::from), 1..600),
        prop::collection::vec(-1.0..1.0f32, 1..3000),
        prop::collection::vec(sparse, 1..3000),
    ]
}

fn squares(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value) * f64::from(value)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_residual_is_the_input_less_what_is_decoded(method in select(every_method()), values in values()) {
        let layout = tensors(values.len());
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::default(), method.clone())).unwrap();
        let pending = encoder.encode(&mut values.clone(), UPDATE).unwrap();
        let decoded = decode(&layout, &pending.frame);
        let expected: Vec<f32> = values.iter().zip(&decoded).map(|(value, decoded)| value + 0.0 - decoded).collect();
        prop_assert_eq!(bits(encoder.residual().unwrap()), bits(&expected));
    }

    #[test]
    fn sizes_add_up_and_never_pass_the_exact_size(method in select(every_method()), values in values()) {
        let layout = tensors(values.len());
        let Pending { frame, stages, digest, .. } = encode(&layout, &method, &values);
        prop_assert_eq!(stages.fp32, values.len() as u64 * 4);
        prop_assert_eq!(stages.framed, frame.len() as u64);
        prop_assert!(stages.coded <= stages.fp32 + 64 * layout.tensors().len() as u64);
        prop_assert!(stages.framed - stages.coded <= 48);
        prop_assert!(stages.entropy_bound >= 0.0 && stages.entropy_bound <= stages.fp32 as f64 + 64.0);
        prop_assert_eq!(digest, Digest::of(&frame));
        let parsed = Frame::parse(&frame, &layout).unwrap();
        prop_assert_eq!(parsed.header(), UPDATE);
        let mut decoded = vec![0.0; layout.len()];
        parsed.accumulate(1.0, &mut decoded).unwrap();
        let largest = decoded.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        prop_assert_eq!(parsed.verify(), Ok(largest));
        let sections: usize = parsed.sections().map(|section| section.bytes.total()).sum();
        prop_assert_eq!(sections as u64, stages.coded);
    }

    #[test]
    fn exact_values_come_back_bit_for_bit(code in select(CodeSpec::ALL), values in values()) {
        let layout = tensors(values.len());
        let pending = encode(&layout, &Method { code, ..Method::default() }, &values);
        let mut out = vec![f32::NAN; values.len()];
        Frame::parse(&pending.frame, &layout).unwrap().decode(&mut out).unwrap();
        prop_assert_eq!(bits(&out), bits(&values));
    }

    #[test]
    fn decoding_is_accumulating_onto_zeros(method in select(every_method()), values in values()) {
        let layout = tensors(values.len());
        let pending = encode(&layout, &method, &values);
        let mut out = vec![f32::NAN; values.len()];
        Frame::parse(&pending.frame, &layout).unwrap().decode(&mut out).unwrap();
        prop_assert_eq!(out, decode(&layout, &pending.frame));
    }

    #[test]
    fn top_k_keeps_the_largest(density in 0.001..=1.0f64, values in values()) {
        let method = Method { reduce: top_k(density), ..Method::default() };
        let layout = one_tensor(values.len());
        let out = decode(&layout, &encode(&layout, &method, &values).frame);
        let nonzero = values.iter().filter(|&&value| value != 0.0).count();
        let k = ((density * values.len() as f64).ceil() as usize).max(1);
        let kept = out.iter().filter(|&&value| value != 0.0).count();
        if 8 * k < values.len() {
            prop_assert_eq!(kept, k.min(nonzero));
            let smallest = out.iter().filter(|&&value| value != 0.0).fold(f32::MAX, |least, value| least.min(value.abs()));
            let dropped = || values.iter().zip(&out).filter(|&(value, out)| value != out).map(|(&value, _)| value);
            prop_assert!(dropped().all(|value| value.abs() <= smallest));
            let share = 1.0 - k as f64 / values.len() as f64;
            prop_assert!(squares(dropped()) <= share * squares(values.iter().copied()) * (1.0 + 1e-6));
        }
        prop_assert!(kept >= k.min(nonzero));
        prop_assert_eq!(&decode(&layout, &encode(&layout, &method, &out).frame), &out, "not idempotent");
        let negative: Vec<f32> = values.iter().map(|value| -value).collect();
        let mirrored: Vec<f32> = out.iter().map(|value| 0.0 - value).collect();
        prop_assert_eq!(decode(&layout, &encode(&layout, &method, &negative).frame), mirrored);
    }

    #[test]
    fn half_is_idempotent_and_scales_by_powers_of_two(values in prop::collection::vec(-1.0..1.0f32, 1..300)) {
        let method = Method { quantize: QuantizeSpec::Half, ..Method::default() };
        let layout = one_tensor(values.len());
        let out = decode(&layout, &encode(&layout, &method, &values).frame);
        prop_assert_eq!(&decode(&layout, &encode(&layout, &method, &out).frame), &out);
        let scaled: Vec<f32> = values.iter().map(|value| value * 1024.0).collect();
        let expected: Vec<f32> = out.iter().map(|value| value * 1024.0).collect();
        prop_assert_eq!(decode(&layout, &encode(&layout, &method, &scaled).frame), expected);
    }

    #[test]
    fn weights_scale_what_is_added(method in select(every_method()), values in values(), weight in -4..=4i8) {
        let layout = tensors(values.len());
        let frame = encode(&layout, &method, &values).frame;
        let mut acc = vec![0.0; values.len()];
        Frame::parse(&frame, &layout).unwrap().accumulate(f32::from(weight), &mut acc).unwrap();
        let expected: Vec<f32> = decode(&layout, &frame).iter().map(|value| value * f32::from(weight)).collect();
        prop_assert_eq!(acc, expected);
    }
}

#[test]
fn lengths_around_every_block_work_with_every_method() {
    for len in [1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 65, 255, 256, 257, 1023, 1024, 1025] {
        lengths(len, &every_method());
    }
    for len in [2047, 2049, 4095, 4096, 4097, 8193, 65_535, 65_537] {
        lengths(len, &some_methods());
    }
}

/// `len` values as one vector, and as a matrix and a vector.
fn lengths(len: usize, methods: &[Method]) {
    let values = noise(len, 5);
    for layout in [one_tensor(len), tensors(len)] {
        for method in methods {
            let pending = encode(&layout, method, &values);
            let verified = Frame::parse(&pending.frame, &layout).unwrap().verify();
            assert!(verified.is_ok(), "{len} {method:?} {verified:?}");
        }
    }
}

#[test]
fn threads_change_neither_frames_nor_what_they_decode_to() {
    let len = 150_000;
    let layout = Arc::new(Layout::new([("a", vec![300, 400]), ("b", vec![len - 120_000]), ("c", vec![7])]).unwrap());
    let values = noise(len + 7, 3);
    for method in some_methods() {
        let outcomes = [1, 2, 3].map(|threads| {
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::default(), method.clone())).unwrap();
            encoder.set_threads(threads);
            let pending = encoder.encode(&mut values.clone(), UPDATE).unwrap();
            (pending.frame, bits(encoder.residual().unwrap()))
        });
        assert!(outcomes[0] == outcomes[1] && outcomes[0] == outcomes[2], "{method:?}");
    }
}

#[test]
fn zeros_take_at_most_32_bytes_unless_sent_as_fp32() {
    for (layout, per_method) in [(one_tensor(20_000), every_method()), (tensors(20_000), some_methods())] {
        let zeros = vec![0.0; layout.len()];
        for method in per_method {
            let whole = matches!(
                method.reduce,
                ReduceSpec::Keep | ReduceSpec::LowRank(_) | ReduceSpec::TensorTrain(_)
            );
            if method.quantize != QuantizeSpec::Exact || method.code != CodeSpec::Pack || !whole {
                let pending = encode(&layout, &method, &zeros);
                assert!(pending.stages.coded <= 32 * layout.tensors().len() as u64, "{method:?}");
                assert_eq!(decode(&layout, &pending.frame), zeros);
            }
        }
    }
}

#[test]
fn coded_size_is_within_two_percent_of_the_bound() {
    // Cubes of uniform numbers: many small values and few large ones.
    let mut state = 1u32;
    let values: Vec<f32> = (0..200_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state as i32 as f32 / 2f32.powi(31)).powi(3)
        })
        .collect();
    let layout = one_tensor(values.len());
    for reduce in [ReduceSpec::Keep, top_k(0.1)] {
        for quantize in [
            uniform(4, Rounding::Nearest, 1024),
            uniform(8, Rounding::Stochastic, 256),
        ] {
            let stages = encode(
                &layout,
                &Method {
                    reduce: reduce.clone(),
                    quantize,
                    code: CodeSpec::Rans,
                    or: None,
                },
                &values,
            )
            .stages;
            assert!(stages.coded as f64 <= stages.entropy_bound * 1.02 + 64.0, "{stages:?}");
            assert!(
                stages.quantized <= stages.reduced && stages.coded <= stages.quantized,
                "{stages:?}"
            );
        }
    }
}

#[test]
fn the_seed_decides_every_random_choice() {
    let layout = one_tensor(2000);
    let values: Vec<f32> = (0..2000).map(|i| (i as f32).sin()).collect();
    let frame = |rounding, seed| {
        let method = Method {
            quantize: uniform(3, rounding, 64),
            ..Method::default()
        };
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::None, method.clone())).unwrap();
        let pending = encoder
            .encode(&mut values.clone(), FrameHeader { seed, ..UPDATE })
            .unwrap();
        pending.frame[34..pending.frame.len() - 4].to_vec()
    };
    assert_eq!(frame(Rounding::Stochastic, 1), frame(Rounding::Stochastic, 1));
    assert_ne!(frame(Rounding::Stochastic, 1), frame(Rounding::Stochastic, 2));
    assert_eq!(frame(Rounding::Nearest, 1), frame(Rounding::Nearest, 2));
}

#[test]
fn a_layout_without_tensors_makes_a_frame_without_sections() {
    let layout = Arc::new(Layout::new(Vec::<(String, Vec<usize>)>::new()).unwrap());
    let mut encoder = Encoder::new(Arc::clone(&layout), &Spec::default()).unwrap();
    let pending = encoder.encode(&mut [], UPDATE).unwrap();
    assert_eq!(pending.frame.len(), 38);
    assert_eq!(
        Frame::parse(&pending.frame, &layout).unwrap().accumulate(1.0, &mut []),
        Ok(())
    );
}

#[test]
fn a_negative_zero_survives_a_snapshot() {
    let layout = one_tensor(3);
    let frame = snapshot(&layout, &[-0.0, 0.0, 1.0], 9).unwrap();
    let mut out = [0.0; 3];
    let parsed = Frame::parse(&frame, &layout).unwrap();
    parsed.decode(&mut out).unwrap();
    assert_eq!(bits(&out), bits(&[-0.0, 0.0, 1.0]));
    assert_eq!(
        parsed.header(),
        FrameHeader {
            kind: FrameKind::Snapshot,
            round: 9,
            seed: 0
        }
    );
}

#[test]
fn wrong_lengths_and_kinds_are_usage_errors() {
    let layout = one_tensor(3);
    let mut encoder = Encoder::new(Arc::clone(&layout), &Spec::exact()).unwrap();
    let snapshot_header = FrameHeader {
        kind: FrameKind::Snapshot,
        ..UPDATE
    };
    assert!(matches!(encoder.encode(&mut [0.0; 2], UPDATE), Err(Error::Usage(_))));
    assert!(matches!(
        encoder.encode(&mut [0.0; 3], snapshot_header),
        Err(Error::Usage(_))
    ));
    let given = EncodeOptions {
        buffers: Some(&[0.0]),
        ..EncodeOptions::default()
    };
    let mut rounding = Encoder::new(Arc::clone(&layout), &Spec::default()).unwrap();
    let refused = rounding.encode_with(given, &mut [0.0; 3], UPDATE).unwrap_err();
    assert_eq!(refused.to_string(), "1 buffers before for 0 of the layout");
    assert!(matches!(snapshot(&layout, &[0.0; 4], 1), Err(Error::Usage(_))));
    assert!(matches!(
        snapshot(&layout, &[f32::INFINITY; 3], 1),
        Err(Error::NotFinite(_))
    ));
    let frame = encode(&layout, &Method::default(), &[1.0; 3]).frame;
    let frame = Frame::parse(&frame, &layout).unwrap();
    assert!(matches!(frame.accumulate(1.0, &mut [0.0; 2]), Err(Error::Usage(_))));
    assert!(matches!(frame.decode(&mut [0.0; 4]), Err(Error::Usage(_))));
}
