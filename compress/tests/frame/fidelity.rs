//! The reported fidelity equals a direct computation from the vectors.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

fn plus(a: &[f64], b: &[f64], weight: f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + weight * b).collect()
}

/// The values of a section, in the order of its tensors.
fn of_section(values: &[f64], section: &SectionInfo<'_>) -> Vec<f64> {
    let tensors = section.tensors.iter();
    tensors
        .flat_map(|tensor| &values[tensor.offset..tensor.offset + tensor.len])
        .copied()
        .collect()
}

/// Reference model of the memories, in `f64`.
#[derive(Default)]
struct Model {
    residual: Vec<f64>,
    shadow: Vec<f64>,
    velocity: Vec<f64>,
    unsent: Vec<f64>,
}

/// The encoded vector, the raw update, and the part of the received update that is not in the frame.
fn vectors(model: &mut Model, memory: Memory, delta: &[f64], predictor: &[f64]) -> [Vec<f64>; 3] {
    let zeros = vec![0.0; delta.len()];
    match memory.resolved(true) {
        Memory::ErrorFeedback { decay } => [plus(delta, &model.residual, decay.get()), delta.to_vec(), zeros],
        Memory::CafeErrorFeedback { decay } => {
            let difference = plus(delta, predictor, -1.0);
            let encoded = plus(&difference, &model.residual, decay.get());
            [encoded, delta.to_vec(), predictor.to_vec()]
        }
        Memory::Ef21 => [plus(delta, &model.shadow, -1.0), delta.to_vec(), model.shadow.clone()],
        Memory::Dgc(dgc) => {
            let factor = dgc
                .clip()
                .map_or(1.0, |clip| (clip / dot(delta, delta).sqrt()).min(1.0));
            let momentum = plus(&zeros, &model.velocity, dgc.momentum());
            model.velocity = plus(&momentum, delta, factor);
            model.unsent = plus(&model.unsent, &model.velocity, 1.0);
            [model.unsent.clone(), model.velocity.clone(), zeros]
        }
        _ => [plus(delta, predictor, -1.0), delta.to_vec(), predictor.to_vec()],
    }
}

fn close(found: f32, expected: f64, what: &str) {
    let expected = expected.clamp(-1.0, 1.0);
    assert!(
        (f64::from(found) - expected).abs() < 1e-4,
        "{what}: {found}, not {expected}"
    );
}

/// Every spec with every memory; all frames accepted.
#[test]
fn the_figures_are_those_of_their_definitions() {
    let layout = merged::layout();
    let len = layout.len();
    // The sections of the predictor differ from those of the frames.
    let step = from_toml("default = { quantize = 'half' }\nsmall = { below = 10, use = { quantize = 'bf16' } }");
    let step = Encoder::new(Arc::clone(&layout), &step)
        .unwrap()
        .encode(&mut noise(len, 99), UPDATE)
        .unwrap();
    for spec in merged::specs() {
        for memory in every_memory() {
            let spec = Spec { memory, ..spec.clone() };
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
            let zeros = || vec![0.0; len];
            let mut model = Model {
                residual: zeros(),
                shadow: zeros(),
                velocity: zeros(),
                unsent: zeros(),
            };
            let predictor = Frame::parse(&step.frame, &layout).unwrap();
            let predictor = memory.predicts().then_some(predictor);
            let predicted = match &predictor {
                Some(_) => wide(&decode(&layout, &step.frame)),
                None => zeros(),
            };
            for round in 0..4 {
                let delta = noise(len, round);
                let [encoded, raw, before] = vectors(&mut model, memory, &wide(&delta), &predicted);
                let header = FrameHeader {
                    round,
                    seed: round,
                    ..UPDATE
                };
                let pending = encoder
                    .encode_against(predictor.as_ref(), &mut delta.clone(), header)
                    .unwrap();
                let decoded = wide(&decode(&layout, &pending.frame));
                let received = plus(&decoded, &before, 1.0);
                let frame = Frame::parse(&pending.frame, &layout).unwrap();
                assert_eq!(frame.sections().len(), pending.fidelity.len());
                for (section, found) in frame.sections().zip(&pending.fidelity) {
                    let [encoded, raw, decoded, received] =
                        [&encoded, &raw, &decoded, &received].map(|values| of_section(values, &section));
                    let what = format!("{memory:?}, {}, round {round}", section.tensors[0].name);
                    let norms = (dot(&raw, &raw) * dot(&received, &received)).sqrt();
                    let cosine = if norms > 0.0 { dot(&raw, &received) / norms } else { 0.0 };
                    close(found.cosine, cosine, &what);
                    let missed = plus(&encoded, &decoded, -1.0);
                    close(found.kept, 1.0 - dot(&missed, &missed) / dot(&encoded, &encoded), &what);
                    let nonzeros = decoded.iter().filter(|value| **value != 0.0).count();
                    assert_eq!(found.nonzeros, nonzeros as u64, "{what}");
                    assert!(found.is_valid(decoded.len() as u64));
                }
                encoder.settle(&pending, Ack::Accepted).unwrap();
                model.residual = plus(&encoded, &decoded, -1.0);
                model.shadow = plus(&model.shadow, &decoded, 1.0);
                model.unsent = plus(&model.unsent, &decoded, -1.0);
                for (velocity, decoded) in model.velocity.iter_mut().zip(&decoded) {
                    *velocity = if *decoded == 0.0 { *velocity } else { 0.0 };
                }
            }
        }
    }
}

#[test]
fn what_is_sent_exactly_is_whole_and_what_is_zero_lacks_nothing() {
    let layout = tensors(113);
    let mut encoder = Encoder::new(Arc::clone(&layout), &Spec::exact()).unwrap();
    let mut delta = noise(113, 1);
    delta[110..].fill(0.0);
    let pending = encoder.encode(&mut delta, UPDATE).unwrap();
    let figures = |fidelity: &Fidelity| (fidelity.cosine, fidelity.kept, fidelity.nonzeros, fidelity.age);
    assert_eq!(figures(&pending.fidelity[0]), (1.0, 1.0, 110, 0));
    assert_eq!(figures(&pending.fidelity[1]), (1.0, 1.0, 0, 1));
}

/// A tensor below its threshold has cosine 0, and its age increases with each frame, accepted or not, also across
/// restarts.
#[test]
fn a_tensor_that_is_not_sent_ages() {
    let layout = tensors(419);
    let spec = from_toml(
        "memory = 'error-feedback'
         default = { reduce = { threshold = 1e9 } }
         rules = [{ when = { min_dims = 2 }, use = {} }]",
    );
    let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
    let verdicts = [Ack::Accepted, Ack::Rejected, Ack::Dropped, Ack::Accepted];
    for (age, verdict) in (1..).zip(verdicts) {
        let pending = encoder.encode(&mut noise(419, age.into()), UPDATE).unwrap();
        let [matrix, vector] = pending.fidelity[..] else {
            panic!("two sections")
        };
        assert_eq!((vector.cosine, vector.nonzeros, vector.age), (0.0, 0, age));
        assert_eq!(matrix.age, 0);
        let mut saved = Vec::new();
        encoder.save(Some(&pending), &mut saved);
        let (loaded, restored) = Encoder::load(Arc::clone(&layout), &spec, &saved).unwrap();
        assert_eq!(restored, Some(pending.clone()));
        encoder = loaded;
        encoder.settle(&pending, verdict).unwrap();
    }
    // A matrix that was sent, but not accepted, ages as well.
    let pending = encoder.encode(&mut noise(419, 9), UPDATE).unwrap();
    encoder.settle(&pending, Ack::Rejected).unwrap();
    let pending = encoder.encode(&mut vec![0.0; 419], UPDATE).unwrap();
    assert!(pending.fidelity[0].nonzeros > 0, "the residual is sent");
    encoder.settle(&pending, Ack::Accepted).unwrap();
    let pending = encoder.encode(&mut vec![0.0; 419], UPDATE).unwrap();
    assert_eq!((pending.fidelity[0].age, pending.fidelity[0].cosine), (1, 1.0));
}

#[test]
fn the_figures_are_the_same_on_any_number_of_threads() {
    let layout = tensors(60_000);
    for memory in every_memory() {
        for method in ["{ reduce = { top_k = 0.3 } }", "{ quantize = { uniform = 4 } }"] {
            let spec = Spec {
                memory,
                ..from_toml(&format!("default = {method}"))
            };
            let encoded = |threads| {
                let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
                encoder.set_threads(threads);
                let first = encoder.encode(&mut noise(60_000, 1), UPDATE).unwrap();
                encoder.settle(&first, Ack::Accepted).unwrap();
                encoder.encode(&mut noise(60_000, 2), UPDATE).unwrap()
            };
            let one = encoded(1);
            assert_eq!(encoded(2), one, "{memory:?} {method}");
            assert_eq!(encoded(5), one, "{memory:?} {method}");
        }
    }
}
