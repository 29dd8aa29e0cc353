//! The error of low-rank approximations by rank, and its inverse: `g` of EDGC (arXiv 2511.10333).
//!
//! For a matrix of independent entries of deviation sigma, the best approximation of rank r leaves `sigma g(r)`, with
//! `g(r)^2 = sum over i > r of s_i^2` over the singular values `s_i` of a unit matrix. Their squares are quantiles of the
//! Marchenko-Pastur law, scaled to a sum of `rows cols`. The sources do not define g; this is the only reading whose
//! dimensions fit.

use std::f64::consts::{FRAC_PI_2, PI};

use crate::layout::Shape;
use crate::math::{self, square};

/// Largest rank of a spec.
pub const MAX_RANK: u32 = 1024;

// Steps of the integral of the density.
const STEPS: usize = 4096;

/// The error by rank: `errors[r]` is left by rank r, falling.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RankErrors(Vec<f64>);

impl RankErrors {
    /// Of a matrix of independent entries of deviation one.
    pub(crate) fn of_random(shape: Shape) -> Self {
        let least = shape.rows.min(shape.cols);
        let most = shape.rows.max(shape.cols);
        let quantiles = marchenko_pastur(least as f64 / most as f64, least);
        let scale = shape.len() as f64 / quantiles.iter().sum::<f64>();
        Self::of_squares(
            quantiles.into_iter().rev().map(|square| square * scale),
            shape.len() as f64,
        )
    }

    /// Of a matrix of this energy whose leading squared singular values are `squares`, falling. What they leave is never
    /// reached by their ranks.
    pub(crate) fn of_squares(squares: impl Iterator<Item = f64>, energy: f64) -> Self {
        let mut left = energy;
        let mut errors = vec![energy.max(0.0).sqrt()];
        errors.extend(squares.map(|square| {
            left -= square;
            // The last of all squares leaves rounding errors.
            if left > 1e-12 * energy { left.sqrt() } else { 0.0 }
        }));
        Self(errors)
    }

    /// The error at `rank`, or at the largest known one.
    pub(crate) fn at(&self, rank: usize) -> f64 {
        self.0[rank.min(self.0.len() - 1)]
    }

    /// The smallest rank whose error is at most `error`, or the largest known one.
    pub(crate) fn rank(&self, error: f64) -> usize {
        self.0.partition_point(|&left| left > error).min(self.0.len() - 1)
    }

    /// The rank that keeps the absolute error of rank `before` after the entropy fell by `fall` nats:
    /// `g(r1) = e^(H0 - H1) g(r0)`.
    pub(crate) fn rank_after(&self, before: usize, fall: f64) -> usize {
        self.rank(self.at(before) * math::exp(fall))
    }
}

/// The quantiles `(i - 1/2) / count`, i from 1 to `count`, of the law for matrices of the aspect `ratio` in (0, 1], rising.
fn marchenko_pastur(ratio: f64, count: usize) -> Vec<f64> {
    let low = square(1.0 - ratio.sqrt());
    let high = square(1.0 + ratio.sqrt());
    // With x = low + (high - low) sin^2, the density has no poles.
    let at = |angle: f64| low + (high - low) * square(math::sin(angle));
    let width = FRAC_PI_2 / STEPS as f64;
    let masses: Vec<f64> = (0..STEPS)
        .map(|step: usize| {
            let angle = (step as f64 + 0.5) * width;
            square(high - low) * square(math::sin(angle) * math::cos(angle)) / (PI * ratio * at(angle)) * width
        })
        .collect();
    let total: f64 = masses.iter().sum();
    let mut out = Vec::with_capacity(count);
    let mut step = 0;
    let mut below = 0.0;
    for place in 0..count {
        let wanted = total * (place as f64 + 0.5) / count as f64;
        while step < STEPS - 1 && below + masses[step] < wanted {
            below += masses[step];
            step += 1;
        }
        let share = ((wanted - below) / masses[step]).clamp(0.0, 1.0);
        out.push(at((step as f64 + share) * width));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: usize, cols: usize) -> RankErrors {
        RankErrors::of_random(Shape { rows, cols })
    }

    #[test]
    fn errors_are_those_of_random_matrices() {
        let errors = of(64, 64);
        let expected = [
            (0, 64.0),
            (1, 62.11),
            (4, 56.90),
            (8, 50.57),
            (16, 39.30),
            (32, 20.86),
            (48, 7.28),
        ];
        for (rank, expected) in expected {
            let found = errors.at(rank);
            assert!((found - expected).abs() < 0.1, "rank {rank}: {found}, not {expected}");
        }
        assert_eq!(errors.at(64), 0.0);
        assert!(errors.0.windows(2).all(|pair| pair[0] > pair[1]));
        assert_eq!(of(128, 512), of(512, 128));
    }

    #[test]
    fn ranks_follow_the_entropy_as_in_the_worked_examples() {
        let near = |found: usize, expected: usize| found.abs_diff(expected) <= 1;
        for (fall, expected) in [(0.05, 15), (0.10, 13), (0.20, 10), (-0.05, 18)] {
            let found = of(64, 64).rank_after(16, fall);
            assert!(near(found, expected), "{fall}: {found}, not {expected}");
        }
        assert_eq!(of(64, 64).rank_after(16, 0.0), 16);
        assert!(near(of(64, 64).rank_after(32, 0.5), 20));
        for (fall, expected) in [(0.05, 27), (0.10, 21), (-0.10, 43)] {
            let found = of(128, 512).rank_after(32, fall);
            assert!(near(found, expected), "{fall}: {found}, not {expected}");
        }
    }

    #[test]
    fn known_squares_give_their_own_ranks() {
        let errors = RankErrors::of_squares([16.0, 8.0, 4.0].into_iter(), 29.0);
        assert_eq!(errors.0, [29.0f64.sqrt(), 13.0f64.sqrt(), 5.0f64.sqrt(), 1.0]);
        assert_eq!(
            [6.0, 4.0, 2.5, 1.5, 0.1].map(|error| errors.rank(error)),
            [0, 1, 2, 3, 3]
        );
        assert_eq!(errors.rank_after(2, 0.0), 2);
        for shape in [(1, 1), (1, 9), (2, 3)] {
            let errors = of(shape.0, shape.1);
            assert_eq!(errors.at(99), 0.0, "{shape:?}");
        }
    }
}
