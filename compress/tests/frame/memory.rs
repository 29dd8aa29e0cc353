//! Error feedback over several rounds.

use std::sync::Arc;

use fl_compress::*;
use proptest::prelude::*;
use proptest::sample::select;

use crate::*;

fn top_1_of_3() -> Method {
    Method {
        reduce: top_k(0.3),
        ..Method::default()
    }
}

#[test]
fn error_feedback_with_top_1_gives_the_worked_example() {
    // The deltas sum to (.6, -.9, .5); the frames send (.5, 0, 0), (0, -.7, 0), (0, 0, .5); the residual is (.1, -.2,
    // 0).
    let layout = one_tensor(3);
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::default(), top_1_of_3())).unwrap();
    let deltas = [[0.5, -0.4, 0.1], [0.2, -0.3, 0.1], [-0.1, -0.2, 0.3]];
    let sent = [[0.5, 0.0, 0.0], [0.0, -0.7, 0.0], [0.0, 0.0, 0.5]];
    let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
    for (mut delta, sent) in deltas.into_iter().zip(sent) {
        let pending = encoder.encode(&mut delta, UPDATE).unwrap();
        assert!(close(&decode(&layout, &pending.frame), &sent));
        encoder.settle(&pending, Ack::Accepted).unwrap();
    }
    assert!(close(encoder.residual().unwrap(), &[0.1, -0.2, 0.0]));
}

#[test]
fn decay_lets_the_residual_fade() {
    let layout = one_tensor(2);
    let memory = Memory::ErrorFeedback {
        decay: Decay::new(0.5).unwrap(),
    };
    let method = Method {
        reduce: top_k(0.5),
        ..Method::default()
    };
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec(memory, method)).unwrap();
    let mut residuals = Vec::new();
    for _ in 0..3 {
        let pending = encoder.encode(&mut [8.0, 1.0], UPDATE).unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        residuals.push(encoder.residual().unwrap()[1]);
    }
    assert_eq!(residuals, [1.0, 1.5, 1.75]);
}

#[test]
fn values_that_are_not_finite_change_nothing() {
    let layout = one_tensor(5000);
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::default(), top_1_of_3())).unwrap();
    let pending = encoder.encode(&mut vec![1.5; 5000], UPDATE).unwrap();
    encoder.settle(&pending, Ack::Accepted).unwrap();
    let before = bits(encoder.residual().unwrap());
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 4095, 4096, 4999] {
            let mut delta = vec![1.0; 5000];
            delta[at] = bad;
            assert!(matches!(encoder.encode(&mut delta, UPDATE), Err(Error::NotFinite(_))));
            assert_eq!(bits(encoder.residual().unwrap()), before);
        }
    }
    let mut stateless = Encoder::new(layout, &Spec::exact()).unwrap();
    assert!(matches!(
        stateless.encode(&mut vec![f32::NAN; 5000], UPDATE),
        Err(Error::NotFinite(_))
    ));
    assert!(
        stateless.encode(&mut vec![1.0; 5000], UPDATE).is_ok(),
        "a frame is pending after an error"
    );
}

#[test]
fn one_frame_at_a_time() {
    let layout = one_tensor(3);
    let mut encoder = Encoder::new(layout, &Spec::exact()).unwrap();
    let pending = encoder.encode(&mut [1.0, 2.0, 3.0], UPDATE).unwrap();
    assert!(matches!(encoder.encode(&mut [1.0; 3], UPDATE), Err(Error::Usage(_))));
    let other = Pending {
        digest: Digest::of(b"other"),
        ..pending.clone()
    };
    assert!(matches!(encoder.settle(&other, Ack::Accepted), Err(Error::Usage(_))));
    assert_eq!(encoder.settle(&pending, Ack::Rejected), Ok(()));
    assert!(
        matches!(encoder.settle(&pending, Ack::Rejected), Err(Error::Usage(_))),
        "settled twice"
    );
    assert_eq!(encoder.residual(), None);
}

/// Rows and columns of unlike size and a component above noise, so that a part of a matrix is split off.
fn structured(layout: &Layout, seed: u64, round: u64) -> Vec<f32> {
    let unit = |at: usize| {
        let mut x = (at as u64 + 1 + 1_000_003 * round + (seed << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x >> 40) as f32 / 8_388_608.0 - 1.0
    };
    let tensor = |tensor: &Tensor| -> Vec<f32> {
        let cols = tensor.shape.last().copied().unwrap_or(1);
        let value = |at: usize| {
            let (row, col) = (at / cols, at % cols);
            3.0 * unit(row) * unit(10_000 + col) + unit(20_000 + tensor.offset + at).powi(5)
        };
        (0..tensor.len).map(value).collect()
    };
    layout.tensors().iter().flat_map(tensor).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// The encoder takes what a frame decodes to from what it coded, not from the frame. Both are the same, to the bit.
    #[test]
    fn the_residual_under_a_budget_is_the_input_less_what_is_decoded(
        cols in 1usize..90,
        bits_a_value in select(vec!["0.05 bits", "0.3 bits", "0.3 bits, error 0.5", "1 bits", "4 bits", "9 bits"]),
        reduce in select(vec!["auto", "keep"]),
        code in select(vec!["context", "rans", "auto"]),
        threads in 1usize..4,
        seed in any::<u64>(),
    ) {
        let tensors = [("a", vec![50, cols]), ("b", vec![64, 40]), ("c", vec![30]), ("d", vec![20])];
        let layout = Arc::new(Layout::new(tensors).unwrap());
        let spec = from_toml(&format!(
            "budget = '{bits_a_value}'\nmemory = 'error-feedback'
            default = {{ reduce = '{reduce}', quantize = 'dead_zone', code = '{code}' }}
            small = {{ below = 100, use = {{ quantize = 'dead_zone', code = 'context' }} }}"
        ));
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
        encoder.set_threads(threads);
        for round in 0..3 {
            let waited = encoder.residual().unwrap().to_vec();
            let mut delta = structured(&layout, seed, round);
            let input: Vec<f32> = delta.iter().zip(&waited).map(|(delta, waited)| delta + waited).collect();
            let pending = encoder.encode(&mut delta, FrameHeader { round, seed, ..UPDATE }).unwrap();
            let decoded = decode(&layout, &pending.frame);
            let left: Vec<f32> = input.iter().zip(&decoded).map(|(input, decoded)| input - decoded).collect();
            prop_assert_eq!(bits(encoder.residual().unwrap()), bits(&left));
            encoder.settle(&pending, Ack::Accepted).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Small integers, so sums are exact and can be compared for equality.
    #[test]
    fn nothing_is_lost_whatever_the_verdicts(
        density in 0.01..0.5f64,
        code in select(CodeSpec::ALL),
        rounds in prop::collection::vec(
            (prop::collection::vec(-50..50i8, 40), select(vec![Ack::Accepted, Ack::Rejected, Ack::Dropped])),
            1..12,
        ),
    ) {
        let layout = one_tensor(40);
        let method = Method { reduce: top_k(density), code, ..Method::default() };
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::default(), method.clone())).unwrap();
        let (mut owed, mut settled) = (vec![0.0; 40], vec![0.0; 40]);
        for (round, (delta, verdict)) in rounds.into_iter().enumerate() {
            let mut delta: Vec<f32> = delta.into_iter().map(f32::from).collect();
            owed.iter_mut().zip(&delta).for_each(|(owed, delta)| *owed += delta);
            let pending = encoder.encode(&mut delta, FrameHeader { round: round as u64, ..UPDATE }).unwrap();
            if verdict != Ack::Rejected {
                Frame::parse(&pending.frame, &layout).unwrap().accumulate(1.0, &mut settled).unwrap();
            }
            encoder.settle(&pending, verdict).unwrap();
            let residual = encoder.residual().unwrap();
            let total: Vec<f32> = settled.iter().zip(residual).map(|(settled, residual)| settled + residual).collect();
            prop_assert_eq!(&total, &owed);
        }
    }

    #[test]
    fn lossy_methods_telescope_within_rounding(method in select(every_method()), seed in any::<u64>()) {
        let layout = tensors(300);
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::default(), method.clone())).unwrap();
        let (mut owed, mut sent) = (vec![0.0f32; 300], vec![0.0f32; 300]);
        for round in 0..8 {
            let value = |i: usize| ((i as u64 * 2_654_435_761 + round * 40_503 + seed % 997) % 2001) as f32 / 1000.0 - 1.0;
            let mut delta: Vec<f32> = (0..300).map(value).collect();
            owed.iter_mut().zip(&delta).for_each(|(owed, delta)| *owed += delta);
            let pending = encoder.encode(&mut delta, FrameHeader { seed: seed ^ round, ..UPDATE }).unwrap();
            Frame::parse(&pending.frame, &layout).unwrap().accumulate(1.0, &mut sent).unwrap();
            encoder.settle(&pending, Ack::Accepted).unwrap();
        }
        let residual = encoder.residual().unwrap();
        let largest = sent.iter().chain(residual).fold(10.0f32, |largest, value| largest.max(value.abs()));
        for ((sent, residual), owed) in sent.iter().zip(residual).zip(&owed) {
            prop_assert!((sent + residual - owed).abs() < 1e-5 * largest, "{} + {} for {}", sent, residual, owed);
        }
    }
}
