//! The encoder's state through a file and back.

use std::sync::Arc;

use fl_compress::*;

use crate::*;

fn method() -> Method {
    Method {
        reduce: top_k(0.1),
        quantize: uniform(4, Rounding::Nearest, 16),
        code: CodeSpec::Rans,
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
    encoder.settle(&first, Verdict::Accepted).unwrap();
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
        for verdict in [Verdict::Accepted, Verdict::Refused, Verdict::Dropped] {
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
    encoder.settle(&pending, Verdict::Accepted).unwrap();
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
            "{len} behind a right checksum"
        );
    }
    for bit in 0..saved.len() * 8 {
        saved[bit / 8] ^= 1 << (bit % 8);
        assert!(load(&saved).is_err(), "bit {bit}");
        saved[bit / 8] ^= 1 << (bit % 8);
    }
    let mut not_finite = saved.clone();
    not_finite[16..20].copy_from_slice(&f32::NAN.to_le_bytes());
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
