//! Values at the ends of the range, NaN and infinity.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

/// Extreme, but finite updates of `len` values.
fn extremes(len: usize) -> Vec<(&'static str, Vec<f32>)> {
    let each = |value: &dyn Fn(usize) -> f32| (0..len).map(value).collect::<Vec<f32>>();
    let sign = |i: usize| if i.is_multiple_of(3) { -1.0 } else { 1.0 };
    let random = noise(len, 9);
    let spike = |value: f32| {
        let mut values = vec![0.0; len];
        values[len / 2] = value;
        values
    };
    vec![
        ("zeros", vec![0.0; len]),
        ("negative zeros", vec![-0.0; len]),
        ("zeros of both signs", each(&|i| 0.0 * sign(i))),
        ("all equal", vec![0.3; len]),
        ("least", each(&|i| 1e-45 * sign(i))),
        ("subnormal", each(&|i| random[i] * 1e-38)),
        ("small", each(&|i| random[i] * 1e-30)),
        (
            "both ends",
            each(&|i| if i.is_multiple_of(2) { 1e38 } else { 1e-38 } * sign(i)),
        ),
        ("large", each(&|i| random[i] * 1e38)),
        ("all largest", vec![f32::MAX; len]),
        ("largest of both signs", each(&|i| f32::MAX * sign(i))),
        ("near the largest", each(&|i| random[i] * f32::MAX)),
        ("spike", spike(f32::MAX)),
        ("small spike", spike(-1e-45)),
        ("at 2^64", each(&|i| 2f32.powi(64) * sign(i))),
    ]
}

#[test]
fn what_is_encoded_decodes_and_leaves_finite_values() {
    for (len, methods) in [(150, every_method()), (1, some_methods()), (4500, some_methods())] {
        let layout = tensors(len);
        for (name, values) in extremes(len) {
            for method in &methods {
                for memory in [Memory::None, Memory::default()] {
                    let mut encoder = Encoder::new(Arc::clone(&layout), &spec(memory, method.clone())).unwrap();
                    let pending = encoder.encode(&mut values.clone(), UPDATE).unwrap();
                    let context = || format!("{name} {method:?} {memory:?} {len}");
                    let stages = pending.stages;
                    assert!(
                        stages.coded <= stages.fp32 + 64 * layout.tensors().len() as u64,
                        "{}",
                        context()
                    );
                    let frame = Frame::parse(&pending.frame, &layout).unwrap();
                    assert!(frame.verify().is_ok(), "{}", context());
                    let mut left: Vec<f32> = values.iter().map(|value| value + 0.0).collect();
                    frame.accumulate(-1.0, &mut left).unwrap();
                    assert!(left.iter().all(|value| value.is_finite()), "{}", context());
                    if let Some(residual) = encoder.residual() {
                        assert_eq!(bits(residual), bits(&left), "{}", context());
                    }
                }
            }
        }
    }
}

#[test]
fn one_extreme_after_another_is_encoded_or_changes_nothing() {
    let layout = tensors(60);
    let updates = || {
        let updates = extremes(60);
        updates.iter().chain(updates.iter().rev()).cloned().collect::<Vec<_>>()
    };
    for memory in every_memory() {
        for method in every_method().into_iter().step_by(5) {
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec(memory, method.clone())).unwrap();
            for (round, (name, mut delta)) in updates().into_iter().enumerate() {
                let before = saved(&encoder);
                let header = FrameHeader {
                    round: round as u64,
                    ..UPDATE
                };
                match encoder.encode(&mut delta, header) {
                    Ok(pending) => {
                        let verdict = [Ack::Accepted, Ack::Rejected, Ack::Dropped][round % 3];
                        encoder.settle(&pending, verdict).unwrap();
                        let restored =
                            Encoder::load(Arc::clone(&layout), &spec(memory, method.clone()), &saved(&encoder));
                        assert!(restored.is_ok(), "{name} {method:?} {memory:?} {restored:?}");
                    }
                    Err(Error::NotFinite(_)) => assert_eq!(saved(&encoder), before),
                    Err(other) => panic!("{name} {method:?} {memory:?} {other}"),
                }
            }
        }
    }
}

fn saved(encoder: &Encoder) -> Vec<u8> {
    let mut bytes = Vec::new();
    encoder.save(None, &mut bytes);
    bytes
}

#[test]
fn values_that_are_not_finite_change_no_memory() {
    let layout = tensors(50);
    let step = encode(&layout, &Method::default(), &noise(50, 1));
    let predictor = Frame::parse(&step.frame, &layout).unwrap();
    for memory in every_memory() {
        for method in some_methods() {
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec(memory, method.clone())).unwrap();
            let mut twin = Encoder::new(Arc::clone(&layout), &spec(memory, method.clone())).unwrap();
            let against = memory.predicts().then_some(&predictor);
            for encoder in [&mut encoder, &mut twin] {
                let pending = encoder.encode_against(against, &mut noise(50, 2), UPDATE).unwrap();
                encoder.settle(&pending, Ack::Accepted).unwrap();
            }
            let before = saved(&encoder);
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, 25, 49] {
                    let mut delta = noise(50, 3);
                    delta[at] = bad;
                    let refusal = encoder.encode_against(against, &mut delta, UPDATE);
                    assert!(matches!(refusal, Err(Error::NotFinite(_))), "{memory:?} {method:?}");
                    assert_eq!(saved(&encoder), before, "{memory:?} {method:?}");
                }
            }
            let next = |encoder: &mut Encoder| encoder.encode_against(against, &mut noise(50, 4), UPDATE).unwrap();
            assert_eq!(next(&mut encoder), next(&mut twin), "{memory:?} {method:?}");
        }
    }
}

#[test]
fn a_shadow_that_would_overflow_is_refused() {
    let layout = one_tensor(2);
    let method = Method {
        quantize: QuantizeSpec::Sign(Sign::Shared),
        ..Method::default()
    };
    let mut encoder = Encoder::new(layout, &spec(Memory::Ef21, method)).unwrap();
    let mut refused = false;
    for delta in [[3.4e38, 3.4e38], [3.4e38, 1e38]] {
        let before = saved(&encoder);
        match encoder.encode(&mut delta.clone(), UPDATE) {
            Ok(pending) => encoder.settle(&pending, Ack::Accepted).unwrap(),
            Err(error) => {
                assert!(matches!(error, Error::NotFinite(_)));
                assert_eq!(saved(&encoder), before);
                refused = true;
            }
        }
    }
    assert!(refused && encoder.encode(&mut [0.0; 2], UPDATE).is_ok());
}

/// `torch.empty(0, 4)` is a tensor of a checkpoint. Its frames are those of the layout without it, but for the fingerprint.
#[test]
fn tensors_without_values_change_no_frame() {
    let of = |tensors: &[(&str, &[usize], Dtype, Role)]| {
        let tensors = tensors
            .iter()
            .map(|(name, shape, dtype, role)| TensorSpec::new(*name, shape, *dtype, *role));
        Arc::new(Layout::of(tensors).unwrap())
    };
    let full = [
        ("bias", &[3][..], Dtype::F32, Role::Trained),
        ("weight", &[20, 30], Dtype::F32, Role::Trained),
        ("mean", &[4], Dtype::F32, Role::Buffer),
        ("seen", &[], Dtype::I64, Role::Counter),
    ];
    let empty = [
        ("a.cache", &[0, 4][..], Dtype::F32, Role::Trained),
        ("c.cache", &[0], Dtype::Bf16, Role::Trained),
        ("z.cache", &[usize::MAX, 2, 0, 7], Dtype::F16, Role::Buffer),
        ("none", &[3, 0], Dtype::I32, Role::Counter),
    ];
    let (plain, with) = (of(&full), of(&[&full[..], &empty].concat()));
    assert_eq!((with.len(), with.tensors().len()), (plain.len(), 8));
    let values: Vec<f32> = noise(plain.len() - 1, 4).into_iter().chain([5.0]).collect();
    for method in some_methods() {
        for small in ["", "small = { below = 10, use = { quantize = 'half' } }"] {
            let spec = Spec {
                memory: Memory::default(),
                default: method.clone(),
                ..from_toml(&format!("default = {{}}\n{small}"))
            };
            let [plain, with] = [&plain, &with].map(|layout| {
                let mut encoder = Encoder::new(Arc::clone(layout), &spec).unwrap();
                let pending = encoder.encode(&mut values.clone(), UPDATE).unwrap();
                let mut state = Vec::new();
                encoder.save(Some(&pending), &mut state);
                assert_eq!(
                    Encoder::load(Arc::clone(layout), &spec, &state).unwrap().1.as_ref(),
                    Some(&pending)
                );
                (decode(layout, &pending.frame), pending)
            });
            assert_eq!(with.0, plain.0, "{method:?}");
            assert_eq!(
                with.1.frame[16..with.1.frame.len() - 4],
                plain.1.frame[16..plain.1.frame.len() - 4]
            );
            assert_eq!(with.1.fidelity, plain.1.fidelity);
        }
    }
    let frame = snapshot(&with, &values, 3).unwrap();
    assert_eq!(decode(&with, &frame), values);
    let floats = Layout::new([("cache", vec![0, 4]), ("w", vec![2])]).unwrap();
    let archive = Archive::write(&floats, b"frame", &[]);
    assert_eq!(Archive::parse(&archive).unwrap().layout, floats);
    // A layout of nothing else has frames without sections.
    let none = Arc::new(Layout::new([("cache", vec![0, 4])]).unwrap());
    assert_eq!(encode(&none, &Method::default(), &[]).frame.len(), 38);
}
