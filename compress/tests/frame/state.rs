//! Saving and loading the state of an encoder.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

fn method() -> Method {
    Method {
        reduce: top_k(0.1),
        quantize: uniform(4, Rounding::Nearest, 16),
        code: CodeSpec::Rans,
        or: None,
    }
}

fn with_memory() -> Spec {
    spec(Memory::default(), method())
}

/// An encoder after one round, and the pending frame of the second.
fn second_round(spec: &Spec) -> (Arc<Layout>, Encoder, Pending) {
    let layout = one_tensor(50);
    let mut encoder = Encoder::new(Arc::clone(&layout), spec).unwrap();
    let delta = || (0..50).map(|i| (i as f32 - 20.0).powi(3)).collect::<Vec<_>>();
    let first = encoder.encode(&mut delta(), UPDATE).unwrap();
    encoder.settle(&first, Ack::Accepted).unwrap();
    let second = encoder.encode(&mut delta(), UPDATE).unwrap();
    (layout, encoder, second)
}

fn save(encoder: &Encoder, pending: Option<&Pending>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encoder.save(pending, &mut bytes);
    bytes
}

#[test]
fn memory_and_pending_frame_survive() {
    for spec in [with_memory(), spec(Memory::None, method())] {
        for verdict in [Ack::Accepted, Ack::Rejected, Ack::Dropped] {
            let (layout, mut encoder, pending) = second_round(&spec);
            let saved = save(&encoder, Some(&pending));
            let (mut loaded, restored) = Encoder::load(Arc::clone(&layout), &spec, &saved).unwrap();
            assert_eq!(restored.as_ref(), Some(&pending));
            assert!(
                matches!(loaded.encode(&mut [0.0; 50], UPDATE), Err(Error::Usage(_))),
                "still pending"
            );
            encoder.settle(&pending, verdict).unwrap();
            loaded.settle(&restored.unwrap(), verdict).unwrap();
            assert_eq!(loaded.residual(), encoder.residual());
            let (mut a, mut b) = ([1.0; 50], [1.0; 50]);
            assert_eq!(loaded.encode(&mut a, UPDATE), encoder.encode(&mut b, UPDATE));
        }
    }
}

#[test]
fn a_settled_frame_is_not_saved() {
    let (layout, mut encoder, pending) = second_round(&with_memory());
    encoder.settle(&pending, Ack::Accepted).unwrap();
    let saved = save(&encoder, Some(&pending));
    assert_eq!(saved, save(&encoder, None));
    assert_eq!(Encoder::load(layout, &with_memory(), &saved).unwrap().1, None);
}

#[test]
fn another_spec_keeps_the_residual() {
    let (layout, encoder, pending) = second_round(&with_memory());
    let saved = save(&encoder, Some(&pending));
    let (loaded, _) = Encoder::load(Arc::clone(&layout), &Spec::default(), &saved).unwrap();
    assert_eq!(loaded.residual(), encoder.residual());
    let (forgetful, _) = Encoder::load(layout, &Spec::exact(), &saved).unwrap();
    assert_eq!(forgetful.residual(), None);
}

#[test]
fn damage_is_refused() {
    let (layout, encoder, pending) = second_round(&with_memory());
    let mut saved = save(&encoder, Some(&pending));
    let load = |bytes: &[u8]| Encoder::load(Arc::clone(&layout), &with_memory(), bytes).map(|_| ());
    assert_eq!(load(&saved), Ok(()));
    for len in 0..saved.len() {
        assert!(
            matches!(
                load(&saved[..len]),
                Err(Error::Truncated { .. } | Error::Corrupt { .. })
            ),
            "{len}"
        );
    }
    for len in 8..saved.len() {
        assert!(
            load(&reseal(saved[..len].to_vec())).is_err(),
            "{len} bytes with a valid checksum"
        );
    }
    for bit in 0..saved.len() * 8 {
        saved[bit / 8] ^= 1 << (bit % 8);
        assert!(load(&saved).is_err(), "bit {bit}");
        saved[bit / 8] ^= 1 << (bit % 8);
    }
    let mut not_finite = saved.clone();
    let residual = saved.len() - 4 - pending.frame.len() - 4 * layout.len();
    not_finite[residual..residual + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(matches!(load(&reseal(not_finite)), Err(Error::NotFinite(_))));
    let other = Encoder::load(one_tensor(51), &with_memory(), &saved).map(|_| ());
    assert!(matches!(other, Err(Error::Mismatch(_))));
}

#[test]
fn saving_appends() {
    let (_, encoder, pending) = second_round(&with_memory());
    let mut bytes = b"before".to_vec();
    encoder.save(Some(&pending), &mut bytes);
    assert_eq!(bytes[6..], save(&encoder, Some(&pending)));
}

/// Rounds of every spec and memory with every acknowledgement. At each point, the loaded encoder behaves like the saved
/// one.
#[test]
fn state_survives_at_every_point() {
    let layout = merged::layout();
    let verdicts = [Ack::Accepted, Ack::Rejected, Ack::Dropped, Ack::Accepted];
    for spec in merged::specs() {
        for memory in every_memory() {
            let spec = Spec { memory, ..spec.clone() };
            let load = |bytes: &[u8]| Encoder::load(Arc::clone(&layout), &spec, bytes).unwrap();
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
            for (round, verdict) in (0..).zip(verdicts) {
                let header = FrameHeader {
                    round,
                    seed: round,
                    ..UPDATE
                };
                let settled = save(&encoder, None);
                let (mut loaded, none) = load(&settled);
                assert_eq!((none, save(&loaded, None)), (None, settled));
                let pending = encoder.encode(&mut noise(layout.len(), round), header).unwrap();
                assert_eq!(loaded.encode(&mut noise(layout.len(), round), header).unwrap(), pending);
                assert_eq!(save(&loaded, Some(&pending)), save(&encoder, Some(&pending)));
                let on_its_way = save(&encoder, Some(&pending));
                let (mut loaded, restored) = load(&on_its_way);
                assert_eq!(restored.as_ref(), Some(&pending));
                assert_eq!(save(&loaded, Some(&pending)), on_its_way);
                encoder.settle(&pending, verdict).unwrap();
                loaded.settle(&pending, verdict).unwrap();
                assert_eq!(save(&loaded, None), save(&encoder, None));
            }
        }
    }
}

#[test]
fn what_was_learned_is_saved() {
    let layout = merged::layout();
    for (at, spec) in merged::specs().into_iter().enumerate() {
        let spec = Spec {
            memory: Memory::None,
            ..spec
        };
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
        let new = save(&encoder, None);
        let pending = encoder.encode(&mut noise(layout.len(), 1), UPDATE).unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        assert_eq!(save(&encoder, None) != new, matches!(at, 1..=5), "{at}");
    }
}

#[test]
fn another_kind_of_memory_is_refused() {
    let layout = one_tensor(50);
    let kept = |memory| {
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec(memory, method())).unwrap();
        let pending = encoder.encode(&mut noise(50, 1), UPDATE).unwrap();
        encoder.settle(&pending, Ack::Accepted).unwrap();
        save(&encoder, None)
    };
    let has_state = |memory| {
        let encoder = Encoder::new(one_tensor(50), &spec(memory, method())).unwrap();
        !saved_vectors(&encoder, None).is_empty()
    };
    let name = |memory: Memory| memory.resolved(true).name();
    let kinds = || every_memory().into_iter().filter(|&memory| has_state(memory));
    for saved_by in kinds() {
        for loaded_by in kinds() {
            let loaded = Encoder::load(Arc::clone(&layout), &spec(loaded_by, method()), &kept(saved_by)).map(drop);
            if name(saved_by) == name(loaded_by) {
                assert_eq!(loaded, Ok(()))
            } else {
                assert!(matches!(loaded, Err(Error::Mismatch(_))), "{saved_by:?} {loaded_by:?}")
            }
        }
        let forgetful = Encoder::load(Arc::clone(&layout), &Spec::exact(), &kept(saved_by));
        assert!(forgetful.is_ok());
    }
}

#[test]
fn damage_to_what_was_learned_is_refused_or_loads() {
    let layout = merged::layout();
    for (at, spec) in merged::specs().into_iter().enumerate() {
        let spec = Spec {
            memory: every_memory()[at % every_memory().len()],
            ..spec
        };
        let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
        let pending = encoder.encode(&mut noise(layout.len(), 1), UPDATE).unwrap();
        let saved = save(&encoder, Some(&pending));
        for len in (8..saved.len()).step_by(37) {
            let cut = reseal(saved[..len].to_vec());
            assert!(Encoder::load(Arc::clone(&layout), &spec, &cut).is_err(), "{len}");
        }
        for bit in (0..saved.len() * 8).step_by(499) {
            let mut changed = saved.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            if let Ok((mut encoder, pending)) = Encoder::load(Arc::clone(&layout), &spec, &reseal(changed)) {
                if let Some(pending) = pending {
                    encoder.settle(&pending, Ack::Rejected).unwrap();
                }
                let _ = encoder.encode(&mut noise(layout.len(), 2), UPDATE);
            }
        }
    }
}

/// A client refuses to read a longer file: it could never start again.
#[test]
fn no_state_is_longer_than_the_bound() {
    let specs = [
        "",
        "memory = ['cafe', 'error-feedback']",
        "memory = 'ef21'",
        "memory = { dgc = { momentum = 0.9, clip = 1.0 } }",
        "memory = ['cafe', 'error-feedback']\ndefault = { reduce = { low_rank = { rank = 200 } }, quantize = 'exact', code = 'pack' }",
        "memory = 'error-feedback'\ndefault = { reduce = { top_k = { density = { by = 'bandit', seed = 3 } } } }",
        "memory = 'error-feedback'\ndefault = { quantize = { uniform = { bits = { by = 'learned', target = 2.5, seed = 3 } } } }",
        "memory = 'error-feedback'\ndefault = { quantize = { uniform = { bits = { by = 'bandit', seed = 3 } } } }",
        "budget = { by = 'bandit', least = '0.25 bits', most = '1 bits', worth = 0.3, seed = 5 }",
    ];
    // Two vectors more would be noticed in the first, longer sections in the second.
    let long = Layout::new([("w", vec![400, 600])]).unwrap();
    let many = Layout::new((0..40).map(|at| (format!("w{at}"), vec![40, 30]))).unwrap();
    for (layout, rounds) in [(long, 2), (many, 6)] {
        let (layout, mut longest) = (Arc::new(layout), 0);
        for text in specs {
            let spec: Spec = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let mut encoder = Encoder::new(Arc::clone(&layout), &spec).unwrap();
            for round in 0..rounds {
                let value = |at: usize| ((at * 31 + round) as f32).sin() * (at % 7) as f32;
                let mut delta: Vec<f32> = (0..layout.len()).map(value).collect();
                let pending = encoder.encode(&mut delta, UPDATE).unwrap();
                let (saved, frame) = (save(&encoder, Some(&pending)).len() as u64, pending.frame.len() as u64);
                let most = Encoder::most_saved(&layout, frame);
                assert!(saved <= most, "{text}: {saved} of {most}");
                longest = longest.max(saved - frame);
                encoder.settle(&pending, Ack::Accepted).unwrap();
            }
        }
        assert!(
            longest * 4 > Encoder::most_saved(&layout, 0),
            "the bound is near what there is: {longest}"
        );
    }
}
