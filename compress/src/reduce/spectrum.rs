//! The leading singular values of a matrix.

use crate::layout::Shape;
use crate::reduce::eigen::{eigen, gram};

// Steps of subspace iteration. The leading values converge first.
const STEPS: usize = 3;

/// About the largest squared singular values, falling, of a matrix of which `step` gives the right factor of the next step of
/// subspace iteration.
pub(crate) fn leading_squares(shape: Shape, step: impl Fn(Option<&[f32]>) -> Vec<f32>) -> Vec<f64> {
    let first = step(None);
    let q = (1..STEPS).fold(first, |warm, _| step(Some(&warm)));
    let rank = q.len() / shape.cols.max(1);
    let (mut squares, _) = eigen(gram(&q, rank, shape.cols), rank);
    squares.iter_mut().for_each(|square| *square = square.max(0.0));
    squares.sort_by(|a, b| b.total_cmp(a));
    squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::low_rank::factors;
    use crate::rng::KeyedRng;

    fn of(values: &[f32], rank: usize) -> Vec<f64> {
        let shape = Shape { rows: 20, cols: 30 };
        leading_squares(shape, |warm| factors(values, shape, rank, warm, KeyedRng::new(1, 0)).q)
    }

    #[test]
    fn the_squares_of_a_diagonal_matrix_are_found() {
        let mut values = vec![0.0; 600];
        for at in 0..20 {
            values[at * 31] = (20 - at) as f32 * if at % 2 == 0 { 1.0 } else { -1.0 };
        }
        for (at, square) in of(&values, 20).iter().enumerate() {
            assert!((square / (20 - at).pow(2) as f64 - 1.0).abs() < 1e-3, "{at}: {square}");
        }
        let few = of(&values, 4);
        assert!(few.len() == 4 && (few[0] / 400.0 - 1.0).abs() < 0.1, "{few:?}");
        assert!(of(&[0.0; 600], 4).iter().all(|square| *square == 0.0));
    }
}
