//! Bytes that no encoder writes are refused with a typed error, without panic.

use std::sync::Arc;

use fl_compress::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::*;

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([("bias", vec![5]), ("weight", vec![40, 30])]).unwrap())
}

fn frame(method: &Method) -> Vec<u8> {
    let values: Vec<f32> = (0..1205)
        .map(|i| ((i * 7919 % 1009) as f32 - 504.0).powi(3) / 1e6)
        .collect();
    encode(&layout(), method, &values).frame
}

/// A frame of one tensor with this section.
fn with_section(len: usize, section: &[u8]) -> Vec<u8> {
    let empty = encode(
        &one_tensor(len),
        &Method {
            reduce: top_k(0.5),
            ..Method::default()
        },
        &vec![0.0; len],
    )
    .frame;
    reseal([&empty[..34], section, &[0; 4]].concat())
}

fn verify(frame: &[u8], layout: &Layout) -> Result<(), Error> {
    Frame::parse(frame, layout)?.verify().map(drop)
}

#[test]
fn every_truncation_and_extension_is_refused() {
    let layout = layout();
    for method in some_methods() {
        let frame = frame(&method);
        for len in (0..frame.len()).step_by(3).chain([frame.len() - 1]) {
            assert!(Frame::parse(&frame[..len], &layout).is_err(), "{method:?} {len}");
        }
        assert!(Frame::parse(&[frame.as_slice(), &[0]].concat(), &layout).is_err());
        let longer = reseal([&frame[..frame.len() - 4], &[0; 5]].concat());
        assert!(
            matches!(Frame::parse(&longer, &layout), Err(Error::Corrupt { .. })),
            "{method:?}"
        );
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let layout = layout();
    for method in some_methods() {
        let mut frame = frame(&method);
        for bit in (0..frame.len() * 8).step_by(if frame.len() > 500 { 5 } else { 1 }) {
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::parse(&frame, &layout).is_err(), "{method:?} {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// A short frame of each recipe: a matrix and small vectors, merged or separate, some with statistics.
fn short_frames() -> Vec<(Arc<Layout>, Vec<u8>)> {
    let layout = Arc::new(Layout::new([("a", vec![3]), ("b", vec![9, 8]), ("c", vec![5])]).unwrap());
    let role = |name: &str, len, dtype, role| TensorSpec {
        name: name.to_owned(),
        shape: vec![len],
        dtype,
        role,
    };
    let with_roles = Arc::new(
        Layout::of([
            role("a", 3, Dtype::F32, Role::Trained),
            role("b", 70, Dtype::F16, Role::Trained),
            role("c", 5, Dtype::F32, Role::Buffer),
            role("d", 2, Dtype::I64, Role::Counter),
        ])
        .unwrap(),
    );
    let mut frames = Vec::new();
    for (at, method) in every_method().into_iter().enumerate() {
        let spec = Spec {
            small: (at % 2 == 0).then(|| Small {
                below: 10,
                method: method.clone(),
            }),
            ..spec(Memory::None, method)
        };
        let layout = if at % 3 == 0 { &with_roles } else { &layout };
        let mut encoder = Encoder::new(Arc::clone(layout), &spec).unwrap();
        let pending = encoder.encode(&mut noise(layout.len(), at as u64), UPDATE).unwrap();
        frames.push((Arc::clone(layout), pending.frame));
    }
    frames
}

/// The frame is refused, or every way of decoding gives finite values.
fn refused_or_finite(frame: &[u8], layout: &Layout) {
    let Ok(frame) = Frame::parse(frame, layout) else { return };
    let verified = frame.verify();
    let mut acc = vec![0.0; layout.len()];
    assert_eq!(frame.accumulate(1.0, &mut acc), verified.clone().map(drop));
    if let Ok(largest) = verified {
        assert!(largest.is_finite() && acc.iter().all(|value| value.abs() <= largest));
    }
}

#[test]
fn every_truncation_behind_a_right_checksum_is_refused() {
    for (layout, frame) in short_frames() {
        for len in 4..frame.len() {
            assert!(verify(&reseal(frame[..len].to_vec()), &layout).is_err(), "{len}");
        }
    }
}

#[test]
fn every_flipped_bit_behind_a_right_checksum_is_refused_or_finite() {
    for (layout, mut frame) in short_frames() {
        for bit in 32 * 8..(frame.len() - 4) * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            frame = reseal(frame);
            refused_or_finite(&frame, &layout);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn other_layouts_and_versions_do_not_match() {
    let frame = frame(&Method::default());
    for other in [("bias", vec![5]), ("weight", vec![1200]), ("weight", vec![30, 40])] {
        let other = Layout::new([other, ("more", vec![1])]).unwrap();
        assert!(matches!(Frame::parse(&frame, &other), Err(Error::Mismatch(_))));
    }
    let patched = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        reseal(frame)
    };
    assert!(
        matches!(Frame::parse(&patched(4, 2), &layout()), Err(Error::Mismatch(_))),
        "newer major"
    );
    assert!(
        matches!(Frame::parse(&patched(4, 0), &layout()), Err(Error::Mismatch(_))),
        "older major"
    );
    assert!(
        matches!(Frame::parse(&patched(6, 3), &layout()), Err(Error::Corrupt { .. })),
        "unknown kind"
    );
    assert!(
        matches!(Frame::parse(&patched(7, 4), &layout()), Err(Error::Corrupt { .. })),
        "unknown flag"
    );
    assert!(
        matches!(Frame::parse(&patched(32, 3), &layout()), Err(Error::Corrupt { .. })),
        "number of sections"
    );
}

/// What a program of version 1.0 does with a frame of 1.1.
#[test]
fn a_newer_minor_version_may_add_optional_fields_and_anything_else_is_refused_by_name() {
    let layout = layout();
    let frame = frame(&Method::default());
    assert_eq!(frame[4..8], [1, 0, 0, 0]);
    let patched = |minor: u8, flags: u8, fields: &[u8], recipe: u8| {
        let mut bytes = [&frame[..34], fields, &frame[34..]].concat();
        (bytes[5], bytes[7]) = (minor, flags);
        bytes[34 + fields.len()] = recipe;
        reseal(bytes)
    };
    let field = [3, 0xaa, 0xbb, 0xcc];
    for newer in [patched(1, 0, &[], frame[34]), patched(1, 128, &field, frame[34])] {
        assert_eq!(decode(&layout, &newer), decode(&layout, &frame));
    }
    let refusal = |bytes: &[u8]| Frame::parse(bytes, &layout).map(drop).unwrap_err();
    for (newer, what) in [
        (patched(1, 8, &[], frame[34]), "flags"),
        (patched(1, 0, &[], 7 << 5), "code"),
        (patched(1, 128, &[0xff, 0xff, 3], frame[34]), "further fields"),
    ] {
        let Error::Mismatch(why) = refusal(&newer) else {
            panic!("{what}")
        };
        assert!(
            why.starts_with("format version 1.1 has at byte ") && why.contains(what),
            "{why}"
        );
        assert!(
            why.contains("version 1.0 does not know") && why.ends_with("update this program"),
            "{why}"
        );
    }
    assert!(matches!(
        refusal(&patched(0, 128, &field, frame[34])),
        Error::Corrupt { .. }
    ));
}

#[test]
fn values_that_are_not_finite_are_refused() {
    let layout = one_tensor(2);
    let exact = |value: f32| [&[0u8][..], &1f32.to_le_bytes(), &value.to_le_bytes()].concat();
    assert_eq!(verify(&with_section(2, &exact(2.0)), &layout), Ok(()));
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(matches!(
            verify(&with_section(2, &exact(bad)), &layout),
            Err(Error::NotFinite(_))
        ));
    }
    let half = |exponent: i8, bits: u16| [&[1 << 2, exponent as u8, 0, 0][..], &bits.to_le_bytes()].concat();
    assert_eq!(verify(&with_section(2, &half(0, 0x7bff)), &layout), Ok(()));
    for section in [half(0, 0x7c00), half(0, 0xfc00), half(0, 0x7e00), half(113, 0x7bff)] {
        assert!(matches!(
            verify(&with_section(2, &section), &layout),
            Err(Error::NotFinite(_))
        ));
    }
    assert!(matches!(
        verify(&with_section(2, &half(114, 0)), &layout),
        Err(Error::Corrupt { .. })
    ));
    assert!(matches!(
        verify(&with_section(2, &half(-127, 0)), &layout),
        Err(Error::Corrupt { .. })
    ));
    // Uniform 4 bits in blocks of 16: bfloat16 scale, two symbols per byte.
    let uniform = |scale: u16, symbols: u8| [&[2 << 2, 3][..], &scale.to_le_bytes(), &[symbols]].concat();
    assert_eq!(verify(&with_section(2, &uniform(0x7f7f, 0xe0)), &layout), Ok(()));
    assert!(matches!(
        verify(&with_section(2, &uniform(0x7f80, 0)), &layout),
        Err(Error::NotFinite(_))
    ));
    assert!(matches!(
        verify(&with_section(2, &uniform(0xbf80, 0)), &layout),
        Err(Error::Corrupt { .. })
    ));
    assert!(matches!(
        verify(&with_section(2, &uniform(0x3f80, 0x0f)), &layout),
        Err(Error::Corrupt { .. })
    ));
}

#[test]
fn absurd_counts_are_refused_before_anything_is_allocated() {
    let layout = one_tensor(100);
    for section in [
        // Top-k of 101, and of 2^35, among 100 values.
        &[1, 101][..],
        &[1, 0x80, 0x80, 0x80, 0x80, 0x80, 1],
        // Index planes of 2^61 bytes, and one byte longer than the frame.
        &[1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[1, 1, 4, 0],
        // A rANS plane of 2^62 bytes; one too short for its states.
        &[1 << 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[1 << 5, 3, 0x80, 0x20, 0, 0, 0, 0],
        // Unknown codes, reductions and quantizers.
        &[5 << 5],
        &[7 << 5],
        &[3, 255],
        &[6 << 2, 4],
        &[7 << 2, 255],
        // More random places than values.
        &[3, 0, 101],
        // Projections to 0 sums, to more than the limit, to 2^35.
        &[3, 2, 0],
        &[3, 2, 0x81, 8],
        &[3, 2, 0x80, 0x80, 0x80, 0x80, 0x80, 1],
        // Sketches with an even number of rows, with more than 15 rows, without columns, with more counters than
        // values.
        &[3, 1, 2, 1, 0, 0, 0, 0],
        &[3, 1, 17, 1, 0, 0, 0, 0],
        &[3, 1, 1, 0, 0, 0, 0, 0],
        &[3, 1, 3, 34, 0, 0, 0, 0],
        // A threshold that is NaN, and a negative one.
        &[3, 1, 1, 1, 0, 0, 0xc0, 0x7f],
        &[3, 1, 1, 1, 0, 0, 0x80, 0xbf],
        // More nonzero levels than values, and 2^62 bytes of level bits.
        &[4 << 2, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f, 101],
        &[
            4 << 2,
            0,
            0,
            0x80,
            0x3f,
            0,
            0,
            0x80,
            0x3f,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0x7f,
        ],
        // A level stream of 2^62 bytes, and steps of zero, minus one and infinity.
        &[
            4 << 5 | 4 << 2,
            0,
            0,
            0x80,
            0x3f,
            0,
            0,
            0x80,
            0x3f,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0xff,
            0x7f,
        ],
        &[4 << 2, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0],
        &[4 << 2, 0, 0, 0x80, 0xbf, 0, 0, 0x80, 0x3f, 0],
        // An exponent out of range.
        &[5 << 2, 0x80, 0],
    ] {
        let refusal = verify(&with_section(100, section), &layout);
        assert!(
            matches!(refusal, Err(Error::Corrupt { .. } | Error::Truncated { .. })),
            "{section:?} {refusal:?}"
        );
    }
}

#[test]
fn ranks_that_cost_more_than_they_save_are_refused() {
    let layout = Layout::new([("weight", vec![3000, 3000])]).unwrap();
    let empty = Arc::new(layout.clone());
    let frame = encode(
        &empty,
        &Method {
            reduce: top_k(0.5),
            ..Method::default()
        },
        &vec![0.0; layout.len()],
    )
    .frame;
    for rank in [&[0u8][..], &[0x81, 8], &[0xdc, 11], &[0xb8, 0x17]] {
        let section = [&[2u8][..], rank, &[0]].concat();
        let refusal = verify(&reseal([&frame[..34], &section, &[0; 4]].concat()), &layout);
        assert!(matches!(refusal, Err(Error::Corrupt { .. })), "{rank:?} {refusal:?}");
    }
}

#[test]
fn a_snapshot_must_be_exact() {
    let layout = layout();
    let mut frame = frame(&Method {
        quantize: QuantizeSpec::Half,
        ..Method::default()
    });
    frame[6] = 2;
    assert!(matches!(
        Frame::parse(&reseal(frame), &layout),
        Err(Error::Corrupt { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_behind_a_right_checksum_are_refused_or_finite(
        method in select(every_method()),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let (layout, mut frame) = (layout(), frame(&method));
        let body = 34..frame.len() - 4;
        for (at, byte) in changes {
            frame[body.start + at.index(body.len())] = byte;
        }
        refused_or_finite(&reseal(frame), &layout);
    }

    #[test]
    fn random_sections_never_panic(section in prop::collection::vec(any::<u8>(), 0..200), len in 1..3000usize) {
        let _ = verify(&with_section(len, &section), &one_tensor(len));
    }

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Frame::parse(&bytes, &layout()).is_err());
    }
}
