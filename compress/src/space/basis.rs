//! Orthonormal vectors, the same bits on every machine: only `+ - * /` and square roots, which round exactly.

use super::spec::Basis;
use crate::rng::KeyedRng;

impl Basis {
    /// `count` orthonormal vectors of `len` values, one after another; `1 <= count <= len`. Returns `[count, len]`.
    pub(super) fn vectors(self, count: usize, len: usize, rng: KeyedRng) -> Vec<f32> {
        match self {
            Self::Random => random(count, len, rng),
            Self::Dct => dct(count, len),
        }
    }
}

/// Uniform draws, orthogonalized by Gram and Schmidt, twice against rounding.
fn random(count: usize, len: usize, rng: KeyedRng) -> Vec<f32> {
    let mut vectors: Vec<f64> = Vec::with_capacity(count * len);
    // A vector in the span of the others is drawn again; the counter goes on.
    let mut drawn = 0;
    while vectors.len() < count * len {
        let mut own: Vec<f64> = (drawn..drawn + len).map(|at| unit(rng.bits(at))).collect();
        drawn += len;
        let before = norm(&own);
        for _ in 0..2 {
            for other in vectors.chunks_exact(len) {
                let share = dot(&own, other);
                own.iter_mut().zip(other).for_each(|(own, other)| *own -= share * other);
            }
        }
        let after = norm(&own);
        if after > 1e-6 * before {
            vectors.extend(own.iter().map(|value| value / after));
        }
    }
    vectors.into_iter().map(|value| value as f32).collect()
}

/// Uniform in [-1, 1).
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 52) as f64) - 1.0
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// The slowest waves of the orthonormal DCT-II: `c_j cos(pi (2 i + 1) j / (2 len))`.
fn dct(count: usize, len: usize) -> Vec<f32> {
    let constant = (1.0 / len as f64).sqrt();
    let wave = (2.0 / len as f64).sqrt();
    (0..count)
        .flat_map(|j| (0..len).map(move |i| (j, i)))
        .map(|(j, i)| {
            if j == 0 {
                return constant as f32;
            }
            // A whole turn has 4 `len` parts.
            let turn = 4 * len as u128;
            let part = (2 * i as u128 + 1) * j as u128 % turn;
            (wave * cosine(part as u64, turn as u64)) as f32
        })
        .collect()
}

/// `cos(2 pi part / turn)`; `part < turn`, a multiple of 4.
fn cosine(part: u64, turn: u64) -> f64 {
    let half = turn / 2;
    let part = if part > half { turn - part } else { part };
    let (part, sign) = if part > turn / 4 {
        (half - part, -1.0)
    } else {
        (part, 1.0)
    };
    let angle = |part: u64| 2.0 * std::f64::consts::PI * part as f64 / turn as f64;
    // Series of Taylor up to an eighth of a turn, where the first term left out is below 1e-17.
    let series = |x: f64, first: u32| {
        let mut term = if first == 0 { 1.0 } else { x };
        let mut sum = 0.0;
        for n in (first + 1..first + 20).step_by(2) {
            sum += term;
            term *= -x * x / f64::from(n * (n + 1));
        }
        sum
    };
    sign * if 8 * part <= turn {
        series(angle(part), 0)
    } else {
        series(angle(turn / 4 - part), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosines_are_those_of_the_standard_library() {
        for turn in [4, 12, 28 * 4, 784 * 4, 4001 * 4] {
            for part in 0..turn {
                let want = (2.0 * std::f64::consts::PI * part as f64 / turn as f64).cos();
                assert!((cosine(part, turn) - want).abs() < 1e-14, "{part} of {turn}");
            }
        }
    }

    #[test]
    fn vectors_are_orthonormal() {
        for basis in [Basis::Random, Basis::Dct] {
            for (count, len) in [(1, 1), (1, 9), (5, 5), (7, 300)] {
                let vectors = basis.vectors(count, len, KeyedRng::new(3, 1));
                assert_eq!(vectors.len(), count * len);
                for (a, x) in vectors.chunks(len).enumerate() {
                    for (b, y) in vectors.chunks(len).enumerate() {
                        let dot: f64 = x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
                        let want = f64::from(u8::from(a == b));
                        assert!((dot - want).abs() < 1e-6, "{basis:?} {count} of {len}: {a} {b} {dot}");
                    }
                }
            }
        }
    }
}
