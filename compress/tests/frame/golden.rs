//! Golden bytes that every later version must write and read. A new major version adds files; no file is ever edited.

use fl_compress::*;

use crate::*;

/// Parses lines of hexadecimal digits; `#` starts a comment.
fn bytes(text: &str) -> Vec<u8> {
    let digits: String = text.lines().map(|line| line.split('#').next().unwrap()).collect();
    let digits: Vec<char> = digits.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new([("bias", vec![3]), ("weight", vec![4, 4])]).unwrap())
}

/// Three values for `bias`, sixteen for `weight`.
fn values() -> Vec<f32> {
    let weight = (0..16).map(|i| (i * 5 % 16) as f32 - 7.5);
    [0.5, -0.25, 0.125].into_iter().chain(weight).collect()
}

/// Vectors as `half`; the largest quarter of each matrix in 4 bits.
fn small() -> Spec {
    let use_half = Method {
        quantize: QuantizeSpec::Half,
        ..Method::default()
    };
    let quarter = Method {
        reduce: top_k(0.25),
        quantize: uniform(4, Rounding::Nearest, 1024),
        ..Method::default()
    };
    let rule = Rule {
        when: When {
            max_dims: Some(1),
            ..When::default()
        },
        method: Some(use_half),
        weight: None,
    };
    Spec {
        memory: Memory::default(),
        default: quarter,
        rules: vec![rule],
        ..Spec::exact()
    }
}

/// A tensor that is long enough for entropy coding to be shorter.
fn long() -> (Arc<Layout>, Vec<f32>) {
    let unit = |i: u32| (i.wrapping_mul(2_654_435_761) >> 20) as f32 / 2048.0 - 1.0;
    (one_tensor(600), (0..600).map(|i| unit(i).powi(5)).collect())
}

fn encoder_and_pending() -> (Encoder, Pending) {
    let mut encoder = Encoder::new(layout(), &small()).unwrap();
    let pending = encoder.encode(&mut values(), UPDATE).unwrap();
    (encoder, pending)
}

fn check(name: &str, written: &[u8], golden: &str) {
    assert_eq!(hex(written), hex(&bytes(golden)), "{name}");
}

#[test]
fn an_update_has_these_bytes() {
    let (_, pending) = encoder_and_pending();
    check("v1-update.hex", &pending.frame, include_str!("../golden/v1-update.hex"));
    let decoded = decode(&layout(), &pending.frame);
    let mut expected = [0.0; 19];
    expected[..3].copy_from_slice(&[0.5, -0.25, 0.125]);
    for (index, value) in [(0, -7.5), (3, 7.5), (6, 6.0 / 7.0 * 7.5), (13, -6.0 / 7.0 * 7.5)] {
        expected[3 + index] = value;
    }
    assert_eq!(decoded, expected);
}

#[test]
fn the_format_document_shows_the_same_bytes() {
    let document = include_str!("../../../docs/reference/format.md");
    for golden in [
        include_str!("../golden/v1-update.hex"),
        include_str!("../golden/v1-2-state.hex"),
    ] {
        assert!(
            document.contains(golden),
            "docs/reference/format.md does not contain\n{golden}"
        );
    }
}

#[test]
fn rans_planes_have_these_bytes() {
    let (layout, values) = long();
    for (reduce, golden) in [
        (ReduceSpec::Keep, include_str!("../golden/v1-rans-dense.hex")),
        (top_k(0.5), include_str!("../golden/v1-rans-sparse.hex")),
    ] {
        let method = Method {
            reduce,
            quantize: uniform(4, Rounding::Stochastic, 256),
            code: CodeSpec::Rans,
            or: None,
        };
        let pending = encode(&layout, &method, &values);
        check("v1-rans", &pending.frame, golden);
        assert_eq!(
            Frame::parse(&bytes(golden), &layout).unwrap().verify().map(drop),
            Ok(())
        );
    }
}

#[test]
fn a_snapshot_has_these_bytes() {
    let frame = snapshot(&layout(), &values(), 9).unwrap();
    check("v1-snapshot.hex", &frame, include_str!("../golden/v1-snapshot.hex"));
}

#[test]
fn a_state_has_these_bytes() {
    let (encoder, pending) = encoder_and_pending();
    let mut state = Vec::new();
    encoder.save(Some(&pending), &mut state);
    check("v1-2-state.hex", &state, include_str!("../golden/v1-2-state.hex"));
    let golden = bytes(include_str!("../golden/v1-2-state.hex"));
    let (loaded, restored) = Encoder::load(layout(), &small(), &golden).unwrap();
    assert_eq!(restored, Some(pending));
    assert_eq!(loaded.residual(), encoder.residual());
}

/// A state of version 1.0 has no fidelity of its pending frame: it is empty after loading, and the state is saved with
/// the same bytes.
#[test]
fn a_state_without_fidelity_is_read_and_has_these_bytes() {
    let (encoder, pending) = encoder_and_pending();
    let golden = bytes(include_str!("../golden/v1-state.hex"));
    let (loaded, restored) = Encoder::load(layout(), &small(), &golden).unwrap();
    let older = Pending {
        fidelity: Vec::new(),
        ..pending
    };
    assert_eq!(restored, Some(older.clone()));
    assert_eq!(loaded.residual(), encoder.residual());
    let mut state = Vec::new();
    loaded.save(Some(&older), &mut state);
    check("v1-state.hex", &state, include_str!("../golden/v1-state.hex"));
}
