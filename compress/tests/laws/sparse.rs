//! Laws of top-k selection.

use crate::*;

const N: usize = 500;

fn top_k(values: &[f32]) -> Vec<f32> {
    once(
        &row(values.len()),
        "default = { reduce = { top_k = 0.1 }, code = 'rans' }",
        values,
        9,
    )
}

#[test]
fn top_k_follows_permutations_signs_and_scales() {
    let values = laplace(N, 7);
    let out = top_k(&values);
    assert_eq!(out.iter().filter(|&&value| value != 0.0).count(), 50);
    assert_eq!(top_k(&out), out, "not idempotent");
    for scale in [-1.0, 8.0, -0.03125] {
        let scaled: Vec<f32> = values.iter().map(|value| value * scale).collect();
        assert_eq!(
            top_k(&scaled),
            out.iter().map(|value| value * scale).collect::<Vec<f32>>()
        );
    }
    let shuffle = |values: &[f32]| (0..N).map(|at| values[at * 77 % N]).collect::<Vec<f32>>();
    assert_eq!(top_k(&shuffle(&values)), shuffle(&out));
}

#[test]
fn the_error_is_the_energy_of_what_was_left_out() {
    for (name, values) in hard(N) {
        let out = top_k(&values);
        let dropped: f64 = values
            .iter()
            .zip(&out)
            .filter(|(_, out)| **out == 0.0)
            .map(|(v, _)| f64::from(*v).powi(2))
            .sum();
        assert!((error(&values, &out) - dropped).abs() <= 1e-12 * dropped, "{name}");
        assert!(dropped <= 0.9 * dot(&values, &values) * (1.0 + 1e-9), "{name}");
    }
}

#[test]
fn a_chunk_is_top_k_of_its_own() {
    let values = laplace(N, 8);
    let spec = "default = { reduce = { top_k = { density = 0.1, chunk = 120 } } }";
    let out = once(&row(N), spec, &values, 9);
    let parts: Vec<f32> = values.chunks(120).flat_map(top_k).collect();
    assert_eq!(out, parts);
}

#[test]
fn the_share_of_chunks_is_rounded_up_once_and_no_chunk_is_passed_over_for_ever() {
    let values = laplace(N, 8);
    for (density, chunk) in [(0.01, 16), (0.01, 7), (0.1, 16), (0.03, 100), (0.001, 599), (1.0, 9)] {
        let spec = format!(
            "memory = 'error-feedback'\ndefault = {{ reduce = {{ top_k = {{ density = {density:?}, chunk = {chunk} }} }} }}"
        );
        let asked = (density * N as f64).ceil() as usize;
        let layout = row(N);
        let mut encoder = encoder(&layout, &spec);
        let mut sent = vec![false; N.div_ceil(chunk)];
        for _ in 0..40 * N.div_ceil(chunk).div_ceil(asked) {
            let pending = encoder.encode(&mut values.clone(), UPDATE).unwrap();
            let out = decode(&layout, &pending.frame);
            assert_eq!(
                out.iter().filter(|value| **value != 0.0).count(),
                asked,
                "{density} of {chunk}"
            );
            for (sent, out) in sent.iter_mut().zip(out.chunks(chunk)) {
                let kept = out.iter().filter(|value| **value != 0.0).count() as f64;
                assert!((kept - density * out.len() as f64).abs() < 1.0, "{density} of {chunk}");
                *sent |= kept > 0.0;
            }
            encoder.settle(&pending, Ack::Accepted).unwrap();
        }
        assert!(sent.iter().all(|&sent| sent), "{density} of {chunk}");
    }
}

/// Top-2 of [.5, -.1, .3, -.9, .05, 0, .2, -.4] at their mean magnitude, by `ternary` and by `sign`.
#[test]
fn sparse_ternary_compression_gives_the_worked_example() {
    let values = [0.5, -0.1, 0.3, -0.9, 0.05, 0.0, 0.2, -0.4];
    for (quantize, value_bytes) in [("ternary", 1), ("sign", 1)] {
        let spec =
            format!("memory = 'error-feedback'\ndefault = {{ reduce = {{ top_k = 0.25 }}, quantize = '{quantize}' }}");
        let layout = row(8);
        let mut encoder = encoder(&layout, &spec);
        let pending = encoder.encode(&mut values.clone(), UPDATE).unwrap();
        let out = decode(&layout, &pending.frame);
        assert_eq!(out, [0.7, 0.0, 0.0, -0.7, 0.0, 0.0, 0.0, 0.0]);
        let left = [-0.2, -0.1, 0.3, -0.2, 0.05, 0.0, 0.2, -0.4];
        assert!(
            less(encoder.residual().unwrap(), &left)
                .iter()
                .all(|off| off.abs() < 1e-6)
        );
        assert!((error(&values, &out) / dot(&values, &values) - 0.280_734).abs() < 1e-6);
        let bytes = Frame::parse(&pending.frame, &layout)
            .unwrap()
            .sections()
            .next()
            .unwrap()
            .bytes;
        // The index plane is a length byte and nine bits of Rice codes: five for the parameter, one and three for the
        // gaps 0 and 2.
        assert_eq!((bytes.indices, bytes.scales, bytes.values), (3, 4, value_bytes));
    }
}

#[test]
fn signs_of_the_largest_are_ternary_in_half_the_bits() {
    let values = laplace(20_000, 9);
    let spec = |quantize| format!("default = {{ reduce = {{ top_k = 0.05 }}, quantize = '{quantize}' }}");
    let layout = row(values.len());
    let bytes = |quantize| {
        let pending = encoder(&layout, &spec(quantize))
            .encode(&mut values.clone(), UPDATE)
            .unwrap();
        let out = decode(&layout, &pending.frame);
        let values = Frame::parse(&pending.frame, &layout)
            .unwrap()
            .sections()
            .next()
            .unwrap()
            .bytes
            .values;
        (out, values)
    };
    let ((ternary, wide), (sign, narrow)) = (bytes("ternary"), bytes("sign"));
    assert_eq!((wide, narrow), (250, 125));
    assert!(error(&ternary, &sign) <= 1e-12 * dot(&sign, &sign));
    let kept: Vec<f32> = values
        .iter()
        .zip(&sign)
        .filter(|(_, out)| **out != 0.0)
        .map(|(value, _)| *value)
        .collect();
    let mean = kept.iter().map(|value| f64::from(value.abs())).sum::<f64>() / 1000.0;
    let expected = dot(&values, &values) - 1000.0 * mean * mean;
    assert!((error(&values, &sign) / expected - 1.0).abs() < 1e-5, "|v|^2 - k mu^2");
}

/// Bits per value: `h(p) + p` for ternary values, and `h(p) + 32 p` for floats, with h the binary entropy.
#[test]
fn sparse_ternary_values_take_the_entropy_of_their_places_and_a_sign() {
    let (n, p) = (400_000, 0.01f64);
    let (layout, values) = (row(n), laplace(n, 10));
    let entropy = -p * p.log2() - (1.0 - p) * (1.0 - p).log2();
    for (quantize, value_bits) in [("sign", 1.0), ("exact", 32.0)] {
        let spec = format!("default = {{ reduce = {{ top_k = {p} }}, quantize = '{quantize}' }}");
        let pending = encoder(&layout, &spec).encode(&mut values.clone(), UPDATE).unwrap();
        let bits = pending.frame.len() as f64 * 8.0 / n as f64;
        let expected = entropy + value_bits * p;
        assert!(
            (bits / expected - 1.0).abs() < 0.02,
            "{quantize}: {bits} bits, not {expected}"
        );
    }
}
