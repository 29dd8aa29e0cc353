//! Properties of every quantizer, shared by their tests.

use crate::code::method::Code;
use crate::error::Error;
use crate::layout::Shape;
use crate::quantize::QuantizeSpec;
use crate::quantize::recipe::Quantize;
use crate::rng::KeyedRng;
use crate::wire::Reader;

/// Symmetric values with heavy tails.
pub(crate) fn heavy(len: usize, seed: u64) -> Vec<f32> {
    let rng = KeyedRng::new(seed, 9);
    (0..len)
        .map(|i| (rng.unit(i) - 0.5) / (rng.unit(i + len) + 0.05) * 1e-3)
        .collect()
}

/// Standard normal values.
pub(crate) fn gaussian(len: usize, seed: u64) -> Vec<f32> {
    let rng = KeyedRng::new(seed, 10);
    (0..len)
        .map(|i| {
            let radius = (-2.0 * f64::from(1.0 - rng.unit(i)).ln()).sqrt();
            (radius * (std::f64::consts::TAU * f64::from(rng.unit(i + len))).cos()) as f32
        })
        .collect()
}

pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

pub(crate) fn squared_error(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2))
        .sum()
}

fn encode(spec: QuantizeSpec, values: &[f32], code: Code, rng: KeyedRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let size = spec
        .method()
        .encode(values, Shape::row(values.len()), code, rng, &mut bytes);
    assert!(size.bound >= 0.0 && (code != Code::Pack || size.bound <= size.plain.max(bytes.len() as u64) as f64));
    bytes
}

fn decode(
    spec: QuantizeSpec,
    bytes: &[u8],
    len: usize,
    code: Code,
    rng: KeyedRng,
    portion: usize,
) -> Result<Vec<f32>, Error> {
    let mut reader = Reader::new(bytes);
    let plane = Quantize::of(&spec).plane(&mut reader, Shape::row(len), code, rng)?;
    reader.finish("end")?;
    assert!(plane.scale_bytes() <= bytes.len());
    let mut values = plane.open()?;
    let mut out = vec![f32::NAN; len];
    out.chunks_mut(portion).try_for_each(|part| values.read(part))?;
    values.finish()?;
    Ok(out)
}

/// Encodes and decodes `values`; for seed 0, also checks that the result does not depend on how many values each read
/// asks for.
pub(crate) fn round_trip(spec: QuantizeSpec, values: &[f32], code: Code, seed: u64) -> Vec<f32> {
    let rng = KeyedRng::new(seed, 0);
    let bytes = encode(spec, values, code, rng);
    let out = decode(spec, &bytes, values.len(), code, rng, values.len().max(1)).unwrap();
    if seed == 0 {
        for portion in [1, 37, 1024, 4096] {
            let again = decode(spec, &bytes, values.len(), code, rng, portion).unwrap();
            assert!(
                out.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()),
                "{portion}"
            );
        }
    }
    out
}

/// Checks unbiasedness over 4000 seeds: the mean of each value is within five standard deviations, and the mean squared
/// error is within 5 % of the sum of `error`, the expected squared error of each value.
pub(crate) fn unbiased(spec: QuantizeSpec, values: &[f32], error: impl Fn(usize) -> f64) {
    const DRAWS: u32 = 4000;
    let mut mean = vec![0.0; values.len()];
    let mut total = 0.0;
    for seed in 0..DRAWS {
        let out = round_trip(spec, values, Code::Pack, u64::from(seed) + 1);
        mean.iter_mut()
            .zip(&out)
            .for_each(|(mean, &out)| *mean += f64::from(out) / f64::from(DRAWS));
        total += squared_error(values, &out) / f64::from(DRAWS);
    }
    let expected: f64 = (0..values.len()).map(&error).sum();
    assert!(
        (total - expected).abs() <= 0.05 * expected,
        "{total:e} instead of {expected:e}"
    );
    for (i, (mean, &value)) in mean.iter().zip(values).enumerate() {
        let tolerance = 5.0 * (error(i) / f64::from(DRAWS)).sqrt() + f64::from(value.abs()) * 1e-6;
        assert!((mean - f64::from(value)).abs() <= tolerance, "{mean:e} for {value:e}");
    }
}

/// Lengths around every block boundary, and magnitudes at both ends of the range: decoded values are finite, and zeros
/// decode to zeros.
pub(crate) fn sizes(spec: QuantizeSpec) {
    for len in [1, 2, 3, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 4099, 70_001] {
        for code in [Code::Pack, Code::Rans] {
            assert_eq!(round_trip(spec, &heavy(len, 5), code, 1).len(), len);
        }
        assert!(
            round_trip(spec, &vec![0.0; len], Code::Rans, 1)
                .iter()
                .all(|&out| out == 0.0)
        );
    }
    for scale in [f32::MAX, 1e38, 1.0, 1e-30, f32::MIN_POSITIVE, 1e-40, 1e-45] {
        for values in [
            vec![scale],
            vec![scale; 50],
            vec![-scale, scale, scale / 3.0, 0.0, -0.0],
        ] {
            for seed in 0..3 {
                let out = round_trip(spec, &values, Code::Pack, seed);
                assert!(out.iter().all(|out| out.is_finite()), "{scale:e} became {out:?}");
            }
        }
    }
    let mut spike = vec![1e-38; 3000];
    spike[1234] = 1e38;
    assert!(
        round_trip(spec, &spike, Code::Rans, 0)
            .iter()
            .all(|out| out.is_finite())
    );
}

/// Truncations are refused; flipped bits give an error or wrong values, never a panic.
pub(crate) fn corruption(spec: QuantizeSpec) {
    let len = 120;
    let rng = KeyedRng::new(1, 0);
    for code in Code::ALL.iter().copied() {
        let bytes = encode(spec, &heavy(len, 6), code, rng);
        for cut in 0..bytes.len() {
            assert!(
                decode(spec, &bytes[..cut], len, code, rng, 50).is_err(),
                "{cut} of {}",
                bytes.len()
            );
        }
        let mut flipped = bytes.clone();
        for bit in 0..bytes.len() * 8 {
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(out) = decode(spec, &flipped, len, code, rng, 50) {
                assert_eq!(out.len(), len);
            }
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
