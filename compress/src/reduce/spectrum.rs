//! The leading singular values of a matrix.

use crate::layout::Shape;
use crate::quantize::numbers::sum_of_squares;
use crate::reduce::components::{eigen, gram};
use crate::reduce::low_rank::{Factors, factors};
use crate::rng::KeyedRng;

/// Steps of subspace iteration. The leading values converge first.
const STEPS: usize = 3;

/// About the `rank` largest squared singular values, falling, and the energy of all.
pub(crate) fn leading_squares(values: &[f32], shape: Shape, rank: usize, rng: KeyedRng) -> (Vec<f64>, f64) {
    let rank = rank.min(shape.rows).min(shape.cols);
    let mut warm: Option<Vec<f32>> = None;
    for _ in 0..STEPS {
        let Factors { q, .. } = factors(values, shape, rank, warm.as_deref(), rng);
        warm = Some(q);
    }
    let q = warm.unwrap_or_default();
    let found = q.len() / shape.cols.max(1);
    let (mut squares, _) = eigen(gram(&q, found, shape.cols), found);
    squares.iter_mut().for_each(|square| *square = square.max(0.0));
    squares.sort_by(|a, b| b.total_cmp(a));
    (squares, sum_of_squares(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_squares_of_a_diagonal_matrix_are_found() {
        let shape = Shape { rows: 20, cols: 30 };
        let mut values = vec![0.0; shape.len()];
        for at in 0..20 {
            values[at * 31] = (20 - at) as f32 * if at % 2 == 0 { 1.0 } else { -1.0 };
        }
        let (squares, energy) = leading_squares(&values, shape, 20, KeyedRng::new(1, 0));
        assert_eq!(energy, 2870.0);
        for (at, square) in squares.iter().enumerate() {
            assert!((square / (20 - at).pow(2) as f64 - 1.0).abs() < 1e-3, "{at}: {square}");
        }
        let (few, _) = leading_squares(&values, shape, 4, KeyedRng::new(1, 0));
        assert!(few.len() == 4 && (few[0] / 400.0 - 1.0).abs() < 0.1, "{few:?}");
        assert_eq!(leading_squares(&[0.0; 600], shape, 4, KeyedRng::new(1, 0)).1, 0.0);
    }
}
