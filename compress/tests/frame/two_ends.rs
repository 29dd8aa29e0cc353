//! Invariants of the memories that involve sender and receiver.

use std::sync::Arc;

use fl_compress::*;
use proptest::prelude::*;
use proptest::sample::select;

use crate::*;

fn verdicts() -> impl Strategy<Value = Vec<Ack>> {
    let verdict = select(vec![Ack::Accepted, Ack::Rejected, Ack::Dropped]);
    prop::collection::vec(verdict, 1..10)
}

fn without_warm_start() -> impl Strategy<Value = Method> {
    let methods = every_method().into_iter();
    select(
        methods
            .filter(|method| !matches!(method.reduce, ReduceSpec::LowRank(_)))
            .collect::<Vec<_>>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_shadow_of_ef21_is_the_receivers_sum(method in without_warm_start(), verdicts in verdicts(), seed in any::<u64>()) {
        let layout = tensors(130);
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::Ef21, method)).unwrap();
        let mut receiver = vec![0.0; 130];
        for (round, verdict) in (0..).zip(verdicts) {
            let header = FrameHeader { round, seed, ..UPDATE };
            let pending = encoder.encode(&mut noise(130, seed ^ round), header).unwrap();
            if verdict == Ack::Accepted {
                let frame = Frame::parse(&pending.frame, &layout).unwrap();
                frame.accumulate(1.0, &mut receiver).unwrap();
            }
            encoder.settle(&pending, verdict).unwrap();
            prop_assert_eq!(bits(&saved_vectors(&encoder, None)[0]), bits(&receiver));
        }
    }

    #[test]
    fn momentum_is_only_masked_by_what_was_taken(method in without_warm_start(), verdicts in verdicts(), seed in any::<u64>()) {
        let layout = tensors(90);
        let memory = from_toml("memory = { dgc = { momentum = 0.75 } }").memory;
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(memory, method)).unwrap();
        let (mut velocity, mut unsent) = (vec![0.0f32; 90], vec![0.0f32; 90]);
        for (round, verdict) in (0..).zip(verdicts) {
            let mut delta = noise(90, seed ^ round);
            for ((velocity, unsent), delta) in velocity.iter_mut().zip(&mut unsent).zip(&delta) {
                *velocity = 0.75 * *velocity + delta;
                *unsent += *velocity;
            }
            let pending = encoder.encode(&mut delta, FrameHeader { round, seed, ..UPDATE }).unwrap();
            encoder.settle(&pending, verdict).unwrap();
            if verdict != Ack::Rejected {
                for (at, sent) in decode(&layout, &pending.frame).into_iter().enumerate() {
                    unsent[at] -= sent;
                    velocity[at] = if sent == 0.0 { velocity[at] } else { 0.0 };
                }
            }
            let kept = saved_vectors(&encoder, None);
            prop_assert_eq!(&kept[0], &unsent);
            prop_assert_eq!(&kept[1], &velocity);
            prop_assert_eq!(encoder.residual(), Some(unsent.as_slice()));
        }
    }

    #[test]
    fn a_predictor_and_the_difference_from_it_make_the_update(method in select(every_method()), seed in any::<u64>()) {
        let layout = tensors(90);
        let step = encode(&layout, &Method { quantize: QuantizeSpec::Half, ..Method::default() }, &noise(90, seed));
        let predictor = Frame::parse(&step.frame, &layout).unwrap();
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::Cafe, method.clone())).unwrap();
        let delta = noise(90, seed ^ 1);
        let pending = encoder.encode_against(Some(&predictor), &mut delta.clone(), UPDATE).unwrap();
        let frame = Frame::parse(&pending.frame, &layout).unwrap();
        prop_assert_eq!(frame.predictor(), Some(predictor.id()));
        prop_assert_eq!(predictor.predictor(), None);
        let difference: Vec<f32> = delta.iter().zip(decode(&layout, &step.frame)).map(|(a, b)| a - b).collect();
        // An encoder with error feedback must encode the same difference to the same values: both memories allow a
        // biased compressor.
        let mut plain = Encoder::new(Arc::clone(&layout), &spec(Memory::default(), method)).unwrap();
        let direct = plain.encode(&mut difference.clone(), UPDATE).unwrap();
        prop_assert_eq!(decode(&layout, &pending.frame), decode(&layout, &direct.frame));
        prop_assert_eq!(pending.stages.framed, direct.stages.framed + 8);
        // The receiver adds predictor and frame.
        let mut received = decode(&layout, &step.frame);
        frame.accumulate(1.0, &mut received).unwrap();
        let left = plain.residual().unwrap();
        for ((received, left), delta) in received.iter().zip(left).zip(&delta) {
            prop_assert!((received + left - delta).abs() <= 1e-5 * (1.0 + received.abs()), "{} {} {}", received, left, delta);
        }
        prop_assert_eq!(encoder.residual(), None);
        encoder.settle(&pending, Ack::Rejected).unwrap();
    }
}

/// v <- v/2 + d, u <- u + v; the largest value of u is sent. Rejected: u and v stay. Accepted or dropped: the sent
/// value is removed from u, and v is set to zero there.
#[test]
fn momentum_by_hand() {
    let layout = one_tensor(3);
    let memory = from_toml("memory = { dgc = { momentum = 0.5 } }").memory;
    let method = Method {
        reduce: top_k(0.3),
        ..Method::default()
    };
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec(memory, method)).unwrap();
    let rounds = [
        (
            [4.0, 1.0, 0.0],
            [4.0, 0.0, 0.0],
            Ack::Accepted,
            [0.0, 1.0, 0.0],
            [0.0, 1.0, 0.0],
        ),
        (
            [1.0, 1.0, 0.0],
            [0.0, 2.5, 0.0],
            Ack::Rejected,
            [1.0, 2.5, 0.0],
            [1.0, 1.5, 0.0],
        ),
        (
            [0.0, 0.0, 2.0],
            [0.0, 3.25, 0.0],
            Ack::Accepted,
            [1.5, 0.0, 2.0],
            [0.5, 0.0, 2.0],
        ),
        (
            [0.0, 0.0, 0.0],
            [0.0, 0.0, 3.0],
            Ack::Dropped,
            [1.75, 0.0, 0.0],
            [0.25, 0.0, 0.0],
        ),
    ];
    for (mut delta, sent, verdict, unsent, velocity) in rounds {
        let pending = encoder.encode(&mut delta, UPDATE).unwrap();
        assert_eq!(decode(&layout, &pending.frame), sent);
        encoder.settle(&pending, verdict).unwrap();
        assert_eq!(saved_vectors(&encoder, None), [unsent, velocity]);
    }
}

#[test]
fn long_updates_are_clipped_to_the_norm() {
    let memory = from_toml("memory = { dgc = { momentum = 0.5, clip = 5.0 } }").memory;
    let layout = one_tensor(2);
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec(memory, Method::default())).unwrap();
    for (mut delta, sent) in [([6.0, 8.0], [3.0, 4.0]), ([0.3, 0.4], [0.3, 0.4])] {
        let pending = encoder.encode(&mut delta, UPDATE).unwrap();
        assert_eq!(decode(&layout, &pending.frame), sent);
        encoder.settle(&pending, Ack::Accepted).unwrap();
    }
}

#[test]
fn ef21_comes_near_what_stays_the_same() {
    let layout = tensors(200);
    for method in [
        Method {
            reduce: top_k(0.1),
            ..Method::default()
        },
        Method {
            quantize: QuantizeSpec::Sign(Sign::Shared),
            ..Method::default()
        },
    ] {
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(Memory::Ef21, method)).unwrap();
        let mut receiver = vec![0.0; 200];
        let target = noise(200, 8);
        for _ in 0..40 {
            let pending = encoder.encode(&mut target.clone(), UPDATE).unwrap();
            Frame::parse(&pending.frame, &layout)
                .unwrap()
                .accumulate(1.0, &mut receiver)
                .unwrap();
            encoder.settle(&pending, Ack::Accepted).unwrap();
        }
        let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
        let error = squares(&mut target.iter().zip(&receiver).map(|(a, b)| a - b));
        assert!(error < 0.01 * squares(&mut target.iter().copied()), "{error}");
    }
}
