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

use std::ops::RangeInclusive;

use crate::finite::largest;
use crate::layout::Shape;
use crate::math::coarse_log2;
use crate::quantize::dead_zone::WORTH;
use crate::reduce::low_rank::{Factors, factors, orthonormalize, start};
use crate::reduce::products::{remainder, times, transposed_times};
use crate::reduce::singular::Singular;
use crate::rng::KeyedRng;

// Components looked for at first; more are looked for while all of them pay.
const FIRST: usize = 16;
// Most components looked for: the search takes time in proportion.
const MOST: usize = 64;
// Steps from a warm start: after one, components were up to 2.5 % worse.
const STEPS: usize = 2;
// A matrix with fewer rows, columns or values has no components worth looking for.
const LEAST_SIDE: usize = 8;
const LEAST_LEN: usize = 256;
// Largest magnitudes of matrices whose products neither overflow nor vanish in `f32`.
const TAME: RangeInclusive<f32> = 1e-12..=1e12;
// `2 pi e`: a Gaussian of variance `v` takes about `coarse_log2(1 + 2 pi e v / step^2) / 2` bits.
const GAUSS: f64 = 17.079_468;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Components {
    rank: usize,
    /// `[rows, rank]`, row-major.
    p: Vec<f32>,
    /// `[rank, cols]`, row-major.
    q: Vec<f32>,
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

/// Most components of a matrix of `shape`: with more, the halves hold as many values as the matrix.
fn most(shape: Shape) -> usize {
    MOST.min((shape.len() - 1) / (shape.rows + shape.cols))
}

impl Components {
    /// Those of `values`, which are finite, that may pay at `step`. `warm` is what [`Components::warm`] gave last time.
    pub(crate) fn new(values: &[f32], shape: Shape, step: f64, warm: Option<&[f32]>, rng: KeyedRng) -> Self {
        let most = most(shape);
        let known = warm.map_or(0, |warm| warm.len() / shape.cols);
        let rank = known.clamp(FIRST, MOST).min(most);
        let first = warm
            .is_none()
            .then(|| Self::search(values, shape, rank, None, rng, 1).q);
        let found = Self::search(values, shape, rank, first.as_deref().or(warm), rng, STEPS);
        found.widened(values, shape, step, rng)
    }

    /// These, and more while all of them pay at `step`.
    pub(crate) fn widened(self, values: &[f32], shape: Shape, step: f64, rng: KeyedRng) -> Self {
        let mut found = self;
        let most = most(shape);
        while found.rank < most && found.paying(shape, step) == found.rank {
            // New rows need two steps: they begin anywhere.
            let wider = Self::search(values, shape, (2 * found.rank).min(most), Some(&found.q), rng, 1);
            found = Self::search(values, shape, wider.rank, Some(&wider.q), rng, 1);
        }
        found
    }

    /// The first `rank`, by `steps` of subspace iteration.
    fn search(values: &[f32], shape: Shape, rank: usize, warm: Option<&[f32]>, rng: KeyedRng, steps: usize) -> Self {
        let factors = if TAME.contains(&largest(values)) {
            tame_factors(values, shape, rank, warm, rng, steps)
        } else {
            let first = factors(values, shape, rank, warm, rng);
            (1..steps).fold(first, |found, _| factors(values, shape, rank, Some(&found.q), rng))
        };
        let Singular { rank, p, q, squares } = Singular::new(&factors, shape.cols, f64::sqrt);
        Self { rank, p, q, squares }
    }

    /// What the next search may begin with, if `rank` of them pay now: those, and some that may pay then.
    pub(crate) fn warm(&self, rank: usize) -> Vec<f32> {
        let kept = (rank + rank / 4 + 8).clamp(FIRST.min(self.rank), self.rank);
        self.q[..kept * (self.q.len() / self.rank.max(1))].to_vec()
    }

    /// How many components are worth their bits if all is quantised with `step`.
    pub(crate) fn paying(&self, shape: Shape, step: f64) -> usize {
        let square = step * step;
        let paying = self.squares.iter().take_while(|&&component| {
            let mut bits = 0.0;
            let mut error = 0.0;
            for side in [shape.rows as f64, shape.cols as f64] {
                let variance = component / side;
                bits += side * 0.5 * coarse_log2(1.0 + GAUSS * variance / square);
                error += side * variance.min(square / 12.0);
            }
            component - error > WORTH * square * bits
        });
        paying.count()
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

/// As [`factors`] repeated, with products in `f32`, of which `values` must be far from the ends of the range. Only the last
/// step makes the first factor orthogonal: the start is near the components, or has a step of its own.
fn tame_factors(
    values: &[f32],
    shape: Shape,
    rank: usize,
    warm: Option<&[f32]>,
    rng: KeyedRng,
    steps: usize,
) -> Factors {
    let Shape { rows, cols } = shape;
    let narrow = |q: Vec<f64>| q.into_iter().map(|value| value as f32).collect::<Vec<f32>>();
    let mut q = narrow(start(cols, rank, warm.unwrap_or_default(), rng));
    for _ in 1..steps {
        q = transposed_times(values, &times(values, &q, cols), rank, cols);
        q = narrow(start(cols, rank, &q, rng));
    }
    let product = times(values, &q, cols);
    let mut columns: Vec<f64> = (0..rank)
        .flat_map(|at: usize| product[at..].iter().step_by(rank).map(|&value| f64::from(value)))
        .collect();
    orthonormalize(&mut columns, rows);
    let p: Vec<f32> = (0..rows)
        .flat_map(|i: usize| columns[i..].iter().step_by(rows).map(|&value| value as f32))
        .collect();
    let q = transposed_times(values, &p, rank, cols);
    Factors { p, q }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::products::multiply;

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
        let components = Components::new(&values, SHAPE, 1e30, None, KeyedRng::new(1, 0));
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
        let components = Components::new(&matrix(1.0), SHAPE, 1e30, None, KeyedRng::new(1, 0));
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
        let components = Components::new(&matrix(0.2), SHAPE, 1e30, None, KeyedRng::new(1, 0));
        let counts: Vec<usize> = [0.05, 0.5, 2.0, 8.0, 1e6]
            .map(|step| components.paying(SHAPE, step))
            .to_vec();
        assert!(counts.windows(2).all(|pair| pair[0] >= pair[1]), "{counts:?}");
        assert!(counts[0] >= 3 && counts[4] == 0, "{counts:?}");
    }

    #[test]
    fn the_search_widens_while_all_components_pay() {
        let full = |step| Components::new(&matrix(9.0), SHAPE, step, None, KeyedRng::new(1, 0));
        assert_eq!(full(1e30).rank, FIRST);
        // With 36 components, the factors of 60 by 90 values would hold as many values.
        assert_eq!(full(1e-6).rank, 35);
        let warm = full(1e-6).warm(20);
        assert_eq!(warm.len(), 33 * SHAPE.cols, "20, a quarter more, and 8");
        let again = Components::new(&matrix(9.0), SHAPE, 1e30, Some(&warm), KeyedRng::new(1, 0));
        assert_eq!(again.rank, 33, "the next search is as wide");
        let narrow = Shape { rows: 8, cols: 40 };
        let values = &matrix(9.0)[..narrow.len()];
        let found = Components::new(values, narrow, 1e-6, Some(&[1.0; 4000]), KeyedRng::new(1, 0));
        assert_eq!(found.rank, 6, "never as many values as the matrix");
        assert_eq!(found.leading(6, narrow.cols).q.len(), 6 * narrow.cols);
    }

    #[test]
    fn zeros_have_no_components_and_large_values_stay_finite() {
        let zeros = Components::new(&vec![0.0; SHAPE.len()], SHAPE, 1e30, None, KeyedRng::new(1, 0));
        assert_eq!(zeros.paying(SHAPE, 1e-3), 0);
        assert!(zeros.q.iter().chain(&zeros.p).all(|value| value.is_finite()));
        let large = Components::new(&vec![f32::MAX; SHAPE.len()], SHAPE, 1e30, None, KeyedRng::new(1, 0));
        assert!(large.q.iter().chain(&large.p).all(|value| value.is_finite()));
    }
}
