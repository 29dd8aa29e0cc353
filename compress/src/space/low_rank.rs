//! A matrix of low rank whose longer side is spanned by fixed vectors (as LoRA with one factor frozen: Sun et al. 2024).

use super::spec::Basis;
use crate::layout::Shape;
use crate::rng::KeyedRng;

/// `X = Z U` for a wide matrix, `X = U^T Z` for a tall one. The rows of `U` are orthonormal, and so are the columns of this map.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LowRank {
    shape: Shape,
    rank: usize,
    /// `[rank, longer side]`
    basis: Vec<f32>,
}

impl LowRank {
    /// `1 <= rank <=` the shorter side of `shape`.
    pub(super) fn new(shape: Shape, rank: usize, basis: Basis, rng: KeyedRng) -> Self {
        Self {
            shape,
            rank,
            basis: basis.vectors(rank, shape.rows.max(shape.cols), rng),
        }
    }

    /// Shape of `Z`: `[rows, rank]`, or `[rank, cols]` of a tall matrix.
    pub(super) fn values(shape: Shape, rank: usize) -> [usize; 2] {
        if is_wide(shape) {
            [shape.rows, rank]
        } else {
            [rank, shape.cols]
        }
    }

    /// Adds the expanded `z` to `x`. Shapes: `z`: as [`LowRank::values`], `x: [rows, cols]`.
    pub(super) fn add_expanded(&self, z: &[f32], x: &mut [f32]) {
        let Self { shape, rank, basis } = self;
        for (row, x) in x.chunks_exact_mut(shape.cols).enumerate() {
            for at in 0..*rank {
                if is_wide(*shape) {
                    add(z[row * rank + at], &basis[at * shape.cols..][..shape.cols], x)
                } else {
                    add(basis[at * shape.rows + row], &z[at * shape.cols..][..shape.cols], x)
                }
            }
        }
    }

    /// The transpose. Shapes: as [`LowRank::add_expanded`]; `z` is overwritten.
    pub(super) fn project(&self, x: &[f32], z: &mut [f32]) {
        let Self { shape, rank, basis } = self;
        z.fill(0.0);
        for (row, x) in x.chunks_exact(shape.cols).enumerate() {
            for at in 0..*rank {
                if is_wide(*shape) {
                    z[row * rank + at] = dot(x, &basis[at * shape.cols..][..shape.cols])
                } else {
                    add(basis[at * shape.rows + row], x, &mut z[at * shape.cols..][..shape.cols])
                }
            }
        }
    }
}

fn is_wide(shape: Shape) -> bool {
    shape.cols >= shape.rows
}

fn add(weight: f32, x: &[f32], to: &mut [f32]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += weight * x);
}

/// Eight sums, so that the loop is vectorized; the same on every machine.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a8, b8) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a8.0.iter().zip(b8.0) {
        for at in 0..8 {
            sums[at] += a[at] * b[at];
        }
    }
    let rest: f32 = a8.1.iter().zip(b8.1).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
