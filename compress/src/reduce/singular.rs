//! Factors of a matrix turned into its singular vectors by a small symmetric eigenproblem (Halko, Martinsson and Tropp
//! 2011, section 5.1).

use crate::reduce::eigen::{eigen, gram};
use crate::reduce::low_rank::{Factors, product};
use crate::simd::vectorized;

/// Singular vectors by falling singular value.
#[derive(Debug)]
pub(crate) struct Singular {
    pub(crate) rank: usize,
    /// `[rows, rank]`, row-major: left singular vectors, each times its scale.
    pub(crate) p: Vec<f32>,
    /// `[rank, cols]`, row-major: right singular vectors, each times its singular value.
    pub(crate) q: Vec<f32>,
    pub(crate) squares: Vec<f64>,
}

impl Singular {
    /// Those of the product of `factors`, whose rank is at least 1. `scale` gives the scale of a left vector for its
    /// squared singular value.
    pub(crate) fn new(Factors { p, q }: &Factors, cols: usize, scale: fn(f64) -> f64) -> Self {
        let rank = q.len() / cols;
        let (squares, vectors) = eigen(gram(q, rank, cols), rank);
        let mut order: Vec<usize> = (0..rank).collect();
        order.sort_by(|&a, &b| squares[b].total_cmp(&squares[a]));
        let squares: Vec<f64> = order.iter().map(|&at| squares[at].max(0.0)).collect();
        let vectors: Vec<&[f64]> = order.iter().map(|&at| &vectors[at * rank..][..rank]).collect();
        let mut new_p = vec![0.0; p.len()];
        let mut new_q = vec![0.0; q.len()];
        vectorized(
            #[inline(always)]
            || {
                for (new, row) in new_p.chunks_exact_mut(rank).zip(p.chunks_exact(rank)) {
                    for ((new, vector), &square) in new.iter_mut().zip(&vectors).zip(&squares) {
                        *new = cut(product(row, vector) * scale(square));
                    }
                }
                let mut sums = vec![0.0; cols];
                for (new, vector) in new_q.chunks_exact_mut(cols).zip(&vectors) {
                    sums.fill(0.0);
                    for (weight, row) in vector.iter().zip(q.chunks_exact(cols)) {
                        sums.iter_mut()
                            .zip(row)
                            .for_each(|(sum, &value)| *sum += weight * f64::from(value));
                    }
                    new.iter_mut().zip(&sums).for_each(|(new, &sum)| *new = cut(sum));
                }
            },
        );
        Self {
            rank,
            p: new_p,
            q: new_q,
            squares,
        }
    }
}

#[inline(always)]
fn cut(value: f64) -> f32 {
    value.clamp(f32::MIN.into(), f32::MAX.into()) as f32
}
