//! Targets for whole archives, frames, state files and specs.

use std::sync::Arc;

use fl_compress::wire::seal;
use fl_compress::{Ack, Archive, Encoder, Error, Frame, FrameHeader, FrameKind, Layout, Spec};

use super::choices::{Choices, layout};
use super::seeds;

/// Fixes fingerprint and checksum if the input is long enough.
fn resealed(bytes: &[u8], layout: &Layout) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(fingerprint) = bytes.get_mut(8..16) {
        fingerprint.copy_from_slice(&layout.fingerprint().to_le_bytes());
    }
    summed(bytes)
}

/// Fixes the checksum.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(body) = bytes.len().checked_sub(4) {
        bytes.truncate(body);
        seal(0, &mut bytes);
    }
    bytes
}

/// A valid archive is written again with the same bytes, and its frame decodes or is refused.
pub fn archive(data: &[u8]) {
    let bytes = summed(data.to_vec());
    let Ok(archive) = Archive::parse(&bytes) else {
        return;
    };
    let mut again = Archive::write(&archive.layout, archive.frame, &archive.integers);
    // A newer minor version is read too.
    again[5] = bytes[5];
    assert_eq!(summed(again), bytes);
    if archive.layout.len() < 100_000
        && let Ok(frame) = Frame::parse(archive.frame, &archive.layout)
        && let Ok(largest) = frame.verify()
    {
        assert!(largest.is_finite());
    }
}

/// A valid frame decodes to finite values, and the values can be encoded again.
pub fn frame(data: &[u8]) {
    let mut choices = Choices(data);
    let layout = layout(choices.u8());
    let bytes = resealed(choices.0, &layout);
    let Ok(frame) = Frame::parse(&bytes, &layout) else {
        return;
    };
    let verified = frame.verify();
    let bounds = frame.bounds();
    let mut sum = vec![0.0; layout.len()];
    assert_eq!(frame.accumulate(1.0, &mut sum), verified.clone().map(drop));
    let Ok(largest) = verified else {
        return;
    };
    assert!(bounds.is_ok_and(|bounds| {
        bounds
            .iter()
            .all(|bound| bound.total().is_finite() && bound.total() >= 0.0)
    }));
    assert!(largest.is_finite() && sum.iter().all(|value| value.abs() <= largest));
    let mut values = vec![f32::NAN; layout.len()];
    assert_eq!(frame.decode(&mut values), Ok(()));
    assert_eq!(values, sum);
    assert_eq!(
        frame.sections().map(|section| section.tensors.len()).sum::<usize>(),
        layout.tensors().len()
    );
    let mut encoder =
        Encoder::new(Arc::clone(&layout), &Spec::exact()).expect("the exact spec is valid for every layout");
    let header = FrameHeader {
        kind: FrameKind::ModelUpdate,
        ..frame.header()
    };
    let pending = encoder
        .encode(&mut values.clone(), header)
        .expect("finite values must encode");
    let mut again = vec![0.0; layout.len()];
    let exact = Frame::parse(&pending.frame, &layout).expect("encoded frames must parse");
    assert_eq!(exact.decode(&mut again), Ok(()));
    assert_eq!(bits(&again), bits(&values));
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A valid state is saved to bytes that load again to the same state, and the encoder continues from it.
pub fn state(data: &[u8]) {
    let mut choices = Choices(data);
    let (layout, specs) = (layout(choices.u8()), seeds::specs());
    let spec = &specs[usize::from(choices.u8()) % specs.len()];
    let bytes = summed(choices.0.to_vec());
    let Ok((mut encoder, pending)) = Encoder::load(Arc::clone(&layout), spec, &bytes) else {
        return;
    };
    let save = |encoder: &Encoder| {
        let mut bytes = Vec::new();
        encoder.save(pending.as_ref(), &mut bytes);
        bytes
    };
    let saved = save(&encoder);
    let (loaded, restored) = Encoder::load(Arc::clone(&layout), spec, &saved).expect("saved states must load");
    assert_eq!(restored, pending);
    assert_eq!(save(&loaded), saved);
    if let Some(pending) = &pending {
        encoder.settle(pending, Ack::Rejected).expect("the frame is pending");
    }
    rounds(&mut encoder, &layout);
}

/// Runs two rounds: each gives a frame that decodes, or a typed error.
fn rounds(encoder: &mut Encoder, layout: &Layout) {
    for round in 0..2 {
        let header = FrameHeader {
            kind: FrameKind::Update,
            round,
            seed: round,
        };
        let mut delta: Vec<f32> = (0..layout.len())
            .map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 64.0)
            .collect();
        match encoder.encode(&mut delta, header) {
            Ok(pending) => {
                let frame = Frame::parse(&pending.frame, layout).expect("encoded frames must parse");
                frame.verify().expect("encoded frames must decode");
                encoder.settle(&pending, Ack::Accepted).expect("the frame is pending");
            }
            Err(error) => assert!(matches!(error, Error::NotFinite(_) | Error::Usage(_)), "{error:?}"),
        }
    }
}

/// A valid spec round-trips through TOML, and can be tried on any layout.
pub fn spec(data: &[u8]) {
    let Ok(spec) = str::from_utf8(data)
        .map_err(drop)
        .and_then(|text| toml::from_str::<Spec>(text).map_err(drop))
    else {
        return;
    };
    let written = toml::to_string(&spec).expect("every spec has a TOML form");
    assert_eq!(toml::from_str(&written), Ok(spec.clone()), "{written}");
    for choice in 0..4 {
        let layout = layout(choice);
        match Encoder::new(Arc::clone(&layout), &spec) {
            Ok(mut encoder) => rounds(&mut encoder, &layout),
            Err(error) => assert!(matches!(error, Error::Usage(_)), "{error:?}"),
        }
    }
}
