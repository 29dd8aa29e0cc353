use super::*;
use crate::rng::KeyedRng;

fn decode(bytes: &[u8], shape: Shape, portion: usize) -> Option<Vec<i32>> {
    let mut decoder = LevelsDecoder::new(bytes, shape);
    let mut out = vec![0; shape.len()];
    out.chunks_mut(portion)
        .for_each(|part| decoder.read(part.len(), |at, level| part[at] = level));
    decoder.finish().then_some(out)
}

fn encoded(levels: &[i32], shape: Shape) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_levels(levels, shape, &mut bytes);
    bytes
}

/// Order-0 entropy in bits.
fn entropy(levels: &[i32]) -> f64 {
    let mut counts = std::collections::BTreeMap::new();
    levels
        .iter()
        .for_each(|&level| *counts.entry(level).or_insert(0u64) += 1);
    let total = levels.len() as f64;
    counts
        .values()
        .map(|&count| count as f64 * (total / count as f64).log2())
        .sum()
}

fn gauss(rng: KeyedRng, i: usize) -> f64 {
    let (u, v) = (f64::from(rng.unit(2 * i)) + 1e-8, f64::from(rng.unit(2 * i + 1)));
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

fn laplace(len: usize, step: f64, rng: KeyedRng) -> Vec<i32> {
    (0..len)
        .map(|i| {
            let u = f64::from(rng.unit(i)) - 0.5;
            let x = -(1.0 - 2.0 * u.abs() + 1e-9).ln() * u.signum();
            quantize(x / step)
        })
        .collect()
}

fn quantize(x: f64) -> i32 {
    (x.abs() + 0.34).floor() as i32 * x.signum() as i32
}

/// Rows and columns of log-normal energy; the signs of a column agree with probability `lean`.
fn matrix(shape: Shape, step: f64, lean: f64) -> Vec<i32> {
    let (a, b, g, s) = (
        KeyedRng::new(1, 0),
        KeyedRng::new(2, 0),
        KeyedRng::new(3, 0),
        KeyedRng::new(4, 0),
    );
    (0..shape.len())
        .map(|i| {
            let (row, col) = (i / shape.cols, i % shape.cols);
            let x = (gauss(a, row) + gauss(b, col)).exp() * gauss(g, i);
            let x = if f64::from(s.unit(i)) < lean {
                x.abs() * if b.bits(col) & 1 == 0 { 1.0 } else { -1.0 }
            } else {
                x
            };
            quantize(x / step)
        })
        .collect()
}

fn size(levels: &[i32], shape: Shape) -> f64 {
    encoded(levels, shape).len() as f64 * 8.0
}

#[test]
fn levels_round_trip_in_any_portions() {
    let rng = KeyedRng::new(6, 0);
    for (rows, cols) in [
        (1, 1),
        (1, 2),
        (1, 7),
        (1, 1000),
        (9, 1),
        (3, 3),
        (40, 8),
        (41, 17),
        (2500, 3),
    ] {
        let shape = Shape { rows, cols };
        for shift in [60, 33, 0] {
            // All magnitudes, in rows of all densities from empty to full.
            let levels: Vec<i32> = (0..shape.len())
                .map(|i| {
                    let magnitude = (rng.bits(i) >> 33 >> (rng.bits(i) % 31).max(shift % 32)) as i32;
                    let sign = if rng.bits(i) >> 32 & 1 == 0 { 1 } else { -1 };
                    if rng.unit(i / cols + 7) < rng.unit(i) {
                        0
                    } else {
                        magnitude * sign
                    }
                })
                .collect();
            let bytes = encoded(&levels, shape);
            for portion in [1, 3, 8, 1000, 4096] {
                assert!(
                    decode(&bytes, shape, portion).as_ref() == Some(&levels),
                    "{shape:?} by {portion}"
                );
            }
        }
    }
    let largest = [i32::MAX, -i32::MAX, 0, 15, 16, -17, i32::MAX, 1, -1];
    for shape in [Shape::row(9), Shape { rows: 3, cols: 3 }, Shape { rows: 9, cols: 1 }] {
        assert_eq!(
            decode(&encoded(&largest, shape), shape, 2).as_deref(),
            Some(&largest[..])
        );
    }
}

#[test]
fn bytes_are_golden() {
    let shape = Shape { rows: 4, cols: 5 };
    let levels = [0, 0, 0, 0, 0, 3, 0, 0, -1, 0, 40, 0, 0, -1, 1, 2, 0, 0, 0, 0];
    assert_eq!(encoded(&levels, shape), [221, 44, 9, 237, 187, 96, 153, 133, 58]);

    let shape = Shape { rows: 1100, cols: 70 };
    let (rows, cols, rng) = (KeyedRng::new(1, 0), KeyedRng::new(2, 0), KeyedRng::new(3, 0));
    let levels: Vec<i32> = (0..shape.len())
        .map(|i| {
            let (row, col) = (rows.bits(i / shape.cols) % 16, cols.bits(i % shape.cols));
            let magnitude = (rng.bits(i) % 64 * row * (col % 16) / 500) as i32;
            if rng.bits(i) >> 60 < col >> 60 {
                -magnitude
            } else {
                magnitude
            }
        })
        .collect();
    let bytes = encoded(&levels, shape);
    assert_eq!(crate::Digest::of(&bytes).short(), 0x13cf_eaf7_8ef8_ed8f);
}

#[test]
fn zeros_take_next_to_nothing() {
    assert!(encoded(&[0; 100_000], Shape::row(100_000)).len() < 8);
    assert_eq!(encoded(&[0], Shape::row(1)).len(), 2);
}

#[test]
fn levels_without_structure_are_near_their_entropy() {
    for shape in [
        Shape::row(100_000),
        Shape { rows: 316, cols: 317 },
        Shape { rows: 1000, cols: 100 },
    ] {
        let levels = laplace(shape.len(), 5.3, KeyedRng::new(9, 0));
        let over = size(&levels, shape) / entropy(&levels);
        assert!(over < 1.01, "{shape:?}: {over}");
    }
    for shape in [Shape::row(1_000_000), Shape { rows: 1000, cols: 1000 }] {
        let levels = laplace(shape.len(), 5.3, KeyedRng::new(9, 0));
        let over = size(&levels, shape) / entropy(&levels);
        assert!(over < 1.003, "{shape:?}: {over}");
    }
}

#[test]
fn rows_and_columns_of_unlike_energy_are_far_below_the_entropy() {
    let shape = Shape { rows: 256, cols: 128 };
    let levels = matrix(shape, 14.0, 0.8);
    let part = size(&levels, shape) / entropy(&levels);
    assert!(part < 0.7, "{part}");
    let support: Vec<u32> = (0..)
        .zip(&matrix(shape, 40.0, 0.0))
        .filter(|&(_, &level)| level != 0)
        .map(|(index, _)| index)
        .collect();
    let mut bytes = Vec::new();
    super::super::support::encode(&support, shape, &mut bytes);
    let bits = bytes.len() as f64 * 8.0 / support.len() as f64;
    assert!(bits < 6.0, "{bits} at {} of {}", support.len(), shape.len());
}

#[test]
fn changed_bytes_never_panic_and_cuts_are_noticed() {
    let shape = Shape { rows: 50, cols: 30 };
    let mut bytes = encoded(&matrix(shape, 4.0, 0.5), shape);
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut], shape, 64).is_none(), "cut at {cut}");
    }
    let more = [bytes.as_slice(), &[0]].concat();
    assert!(decode(&more, shape, 64).is_none());
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        decode(&bytes, shape, 64);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for byte in [0x00, 0x55, 0xff] {
        decode(&[byte; 5000], shape, 64);
    }
}

/// Carries propagate through several bytes, and a stream of improbable decisions decodes exactly.
#[test]
fn unlikely_decisions_are_kept() {
    let shape = Shape { rows: 64, cols: 500 };
    let levels: Vec<i32> = (0..shape.len())
        .map(|i| i32::from(i % 4999 == 4998) * i as i32)
        .collect();
    assert!(decode(&encoded(&levels, shape), shape, 4096) == Some(levels));
}
