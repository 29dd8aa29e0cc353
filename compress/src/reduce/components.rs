//! The largest singular components of a matrix, each half carrying its singular value.
//!
//! ```text
//! M = sum over i of p_i q_i^T / s_i + R        |p_i| = |q_i| = s_i
//! ```
//!
//! So written, a value of `p_i`, a value of `q_i` and a value of R that are wrong by as much make M wrong by as much, and one
//! step is right for all three. The decoder has no `s_i`: it takes the length of the `q_i` it decoded, so that the sum is
//! `p_i (q_i / |q_i|)^T`. What both halves lose in quantization is left to R, which is taken after it.
//!
//! From PowerSGD's subspace iteration ([`super::low_rank`]), whose factors a small symmetric eigenproblem turns into singular
//! vectors (Halko, Martinsson and Tropp 2011, section 5.1). That the singular value goes into both halves, and which
//! components are worth their bits, is ours.

use crate::layout::Shape;
use crate::reduce::low_rank::{Factors, factors, remainder};
use crate::rng::KeyedRng;

/// Components looked for.
pub(crate) const MOST: usize = 16;
/// A matrix with fewer rows, columns or values has no components worth looking for.
const LEAST_SIDE: usize = 24;
const LEAST_LEN: usize = 4096;
/// Squared error that a bit is worth, in squared steps: the slope of a uniform quantiser at high rate, `2 ln 2 / 12`, and
/// about that of a dead zone at low rate.
pub(crate) const WORTH: f64 = 0.1155;
/// `2 pi e`: a Gaussian of variance `v` takes about `log2(1 + 2 pi e v / step^2) / 2` bits.
const GAUSS: f64 = 17.079_468;
/// Sweeps of the eigenvalue iteration; it converges quadratically.
const SWEEPS: usize = 12;

/// Components by falling singular value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Components {
    rank: usize,
    /// `[rows, rank]`, row-major.
    p: Vec<f32>,
    /// `[rank, cols]`, row-major.
    q: Vec<f32>,
    /// Squared singular values.
    squares: Vec<f64>,
}

/// The first components of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeadingComponents {
    pub(crate) rank: usize,
    /// `[rows, rank]`, row-major.
    pub(crate) p: Vec<f32>,
    /// `[rank, cols]`, row-major.
    pub(crate) q: Vec<f32>,
}

/// Whether a matrix of `shape` may have components that pay.
pub(crate) fn may_pay(shape: Shape) -> bool {
    shape.rows.min(shape.cols) >= LEAST_SIDE && shape.len() >= LEAST_LEN
}

impl Components {
    /// Of `values`, which are finite. `warm` is what [`Components::warm`] gave last time.
    pub(crate) fn new(values: &[f32], shape: Shape, warm: Option<&[f32]>, rng: KeyedRng) -> Self {
        let first = factors(values, shape, MOST, warm, rng);
        let Factors { p, q } = match warm {
            Some(_) => first,
            None => factors(values, shape, MOST, Some(&first.q), rng),
        };
        let rank = q.len() / shape.cols;
        let (squares, turn) = eigen(gram(&q, rank, shape.cols), rank);
        let mut order: Vec<usize> = (0..rank).collect();
        order.sort_by(|&a, &b| squares[b].total_cmp(&squares[a]));
        let squares: Vec<f64> = order.iter().map(|&at| squares[at].max(0.0)).collect();
        let weight = |from: usize, to: usize| turn[from * rank + order[to]];
        let mut new_p = Vec::with_capacity(p.len());
        for row in p.chunks_exact(rank) {
            for (to, square) in squares.iter().enumerate() {
                let sum: f64 = row
                    .iter()
                    .enumerate()
                    .map(|(from, &value)| f64::from(value) * weight(from, to))
                    .sum();
                new_p.push(cut(sum * square.sqrt()));
            }
        }
        let mut new_q = Vec::with_capacity(q.len());
        for to in 0..rank {
            let mut sums = vec![0.0; shape.cols];
            for (from, row) in q.chunks_exact(shape.cols).enumerate() {
                let weight = weight(from, to);
                sums.iter_mut()
                    .zip(row)
                    .for_each(|(sum, &value)| *sum += weight * f64::from(value));
            }
            new_q.extend(sums.into_iter().map(cut));
        }
        Self {
            rank,
            p: new_p,
            q: new_q,
            squares,
        }
    }

    /// What the next search may begin with.
    pub(crate) fn warm(&self) -> Vec<f32> {
        self.q.clone()
    }

    /// How many components are worth their bits if all is quantised with `step`.
    pub(crate) fn paying(&self, shape: Shape, step: f64) -> usize {
        let square = step * step;
        let pays = |&component: &f64| {
            let (mut bits, mut error) = (0.0, 0.0);
            for side in [shape.rows as f64, shape.cols as f64] {
                let variance = component / side;
                bits += side * 0.5 * (1.0 + GAUSS * variance / square).log2();
                error += side * variance.min(square / 12.0);
            }
            component - error > WORTH * square * bits
        };
        self.squares.iter().take_while(|square| pays(square)).count()
    }

    /// The first `rank` of them.
    pub(crate) fn leading(&self, rank: usize, cols: usize) -> LeadingComponents {
        let rows = self.p.chunks_exact(self.rank.max(1));
        LeadingComponents {
            rank,
            p: rows.flat_map(|row| &row[..rank]).copied().collect(),
            q: self.q[..rank * cols].to_vec(),
        }
    }
}

impl LeadingComponents {
    /// What they leave of `values`.
    pub(crate) fn left(&self, values: &[f32], shape: Shape) -> Vec<f32> {
        let mut q = self.q.clone();
        normalize(&mut q, shape.cols);
        remainder(values, &self.p, &q, self.rank, shape.cols)
    }
}

/// Makes each row of `q`, decoded, of length one; rows of zeros stay. Shapes: `q: [rank, cols]`.
pub(crate) fn normalize(q: &mut [f32], cols: usize) {
    for row in q.chunks_exact_mut(cols) {
        let square: f64 = row.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
        let length = square.sqrt();
        if length > 0.0 {
            row.iter_mut()
                .for_each(|value| *value = (f64::from(*value) / length) as f32);
        }
    }
}

fn cut(value: f64) -> f32 {
    value.clamp(f32::MIN.into(), f32::MAX.into()) as f32
}

/// `q q^T`: `[rank, rank]`.
fn gram(q: &[f32], rank: usize, cols: usize) -> Vec<f64> {
    let mut out = vec![0.0; rank * rank];
    for a in 0..rank {
        for b in 0..=a {
            let (x, y) = (&q[a * cols..][..cols], &q[b * cols..][..cols]);
            let sum: f64 = x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
            (out[a * rank + b], out[b * rank + a]) = (sum, sum);
        }
    }
    out
}

/// Eigenvalues and eigenvectors (by columns) of a symmetric matrix, by cyclic Jacobi rotations.
fn eigen(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut v = vec![0.0; n * n];
    (0..n).for_each(|i| v[i * n + i] = 1.0);
    for _ in 0..SWEEPS {
        for p in 0..n {
            for q in p + 1..n {
                let off = a[p * n + q];
                if off == 0.0 {
                    continue;
                }
                let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * off);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let (c, s) = (1.0 / (t * t + 1.0).sqrt(), t / (t * t + 1.0).sqrt());
                for k in 0..n {
                    let (x, y) = (a[k * n + p], a[k * n + q]);
                    (a[k * n + p], a[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (a[p * n + k], a[q * n + k]);
                    (a[p * n + k], a[q * n + k]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (v[k * n + p], v[k * n + q]);
                    (v[k * n + p], v[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
    }
    ((0..n).map(|i| a[i * n + i]).collect(), v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::low_rank::multiply;

    const SHAPE: Shape = Shape { rows: 60, cols: 90 };

    fn unit(at: usize) -> f32 {
        KeyedRng::new(11, 0).unit(at) - 0.5
    }

    /// Three components of falling size, and noise.
    fn matrix(noise: f32) -> Vec<f32> {
        let value = |i: usize, j: usize| {
            let components = (0..3).map(|k| unit(1000 * k + i) * unit(5000 + 1000 * k + j) * [9.0, 4.0, 2.0][k]);
            components.sum::<f32>() + noise * unit(10_000 + i * SHAPE.cols + j)
        };
        (0..SHAPE.rows)
            .flat_map(|i| (0..SHAPE.cols).map(move |j| value(i, j)))
            .collect()
    }

    fn product(leading: &LeadingComponents) -> Vec<f32> {
        let mut q = leading.q.clone();
        normalize(&mut q, SHAPE.cols);
        let mut out = vec![0.0; SHAPE.len()];
        multiply(&leading.p, &q, leading.rank, SHAPE.cols, 0, &mut out);
        out
    }

    fn squares(values: impl Iterator<Item = f32>) -> f64 {
        values.map(|value| f64::from(value) * f64::from(value)).sum()
    }

    #[test]
    fn a_matrix_of_rank_three_is_three_components() {
        let values = matrix(0.0);
        let components = Components::new(&values, SHAPE, None, KeyedRng::new(1, 0));
        let leading = components.leading(3, SHAPE.cols);
        let error = squares(values.iter().zip(product(&leading)).map(|(a, b)| a - b));
        assert!(error < 1e-8 * squares(values.iter().copied()), "{error}");
        assert!(components.squares[3] < 1e-6 * components.squares[0]);
        for (at, row) in leading.q.chunks(SHAPE.cols).enumerate() {
            let (p, q) = (leading.p.iter().skip(at).step_by(3), squares(row.iter().copied()));
            assert!(
                (squares(p.copied()) / q - 1.0).abs() < 1e-4,
                "both halves carry the singular value"
            );
            assert!((components.squares[at] / q - 1.0).abs() < 1e-4);
        }
    }

    #[test]
    fn components_are_orthogonal_and_fall() {
        let components = Components::new(&matrix(1.0), SHAPE, None, KeyedRng::new(1, 0));
        assert!(components.squares.windows(2).all(|pair| pair[0] >= pair[1]));
        let rows: Vec<&[f32]> = components.q.chunks(SHAPE.cols).collect();
        for (at, a) in rows.iter().enumerate() {
            for (other, b) in rows[..at].iter().enumerate() {
                let dot: f64 = a.iter().zip(*b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                let scale = (components.squares[at] * components.squares[other]).sqrt();
                assert!(dot.abs() < 1e-4 * scale, "{dot} of {scale}");
            }
        }
    }

    #[test]
    fn fewer_components_pay_as_the_step_grows() {
        let components = Components::new(&matrix(0.2), SHAPE, None, KeyedRng::new(1, 0));
        let counts: Vec<usize> = [0.05, 0.5, 2.0, 8.0, 1e6]
            .map(|step| components.paying(SHAPE, step))
            .to_vec();
        assert!(counts.windows(2).all(|pair| pair[0] >= pair[1]), "{counts:?}");
        assert!(counts[0] >= 3 && counts[4] == 0, "{counts:?}");
    }

    #[test]
    fn zeros_have_no_components_and_large_values_stay_finite() {
        let zeros = Components::new(&vec![0.0; SHAPE.len()], SHAPE, None, KeyedRng::new(1, 0));
        assert_eq!(zeros.paying(SHAPE, 1e-3), 0);
        assert!(zeros.q.iter().chain(&zeros.p).all(|value| value.is_finite()));
        let large = Components::new(&vec![f32::MAX; SHAPE.len()], SHAPE, None, KeyedRng::new(1, 0));
        assert!(large.q.iter().chain(&large.p).all(|value| value.is_finite()));
    }
}
