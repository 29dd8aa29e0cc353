//! The planes that a recipe announces.

use crate::layout::Shape;
use crate::reduce::{Reduce, projection};

/// What one part of a section holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    /// Whether its places are sent.
    pub(crate) indexed: bool,
    /// The shape of its values.
    pub(crate) shape: Shape,
}

/// The parts of a section, those without a value left out.
pub(crate) fn parts(reduce: Reduce, shape: Shape) -> Vec<Part> {
    let plain = |rows: usize, cols: usize| Part {
        indexed: false,
        shape: Shape { rows, cols },
    };
    let indexed = |k: u32| Part {
        indexed: true,
        shape: Shape::row(k as usize),
    };
    let mut parts = match reduce {
        Reduce::Keep => vec![plain(shape.rows, shape.cols)],
        Reduce::Support { k } => vec![indexed(k)],
        Reduce::RandomK { k } => vec![plain(1, k as usize)],
        Reduce::LowRank { rank, k } => {
            let rank = rank as usize;
            vec![plain(shape.rows, rank), plain(rank, shape.cols), indexed(k)]
        }
        Reduce::Components { rank } => {
            let rank = rank as usize;
            vec![
                plain(shape.rows, rank),
                plain(rank, shape.cols),
                plain(shape.rows, shape.cols),
            ]
        }
        Reduce::CountSketch { rows, cols, .. } => vec![plain(rows as usize, cols as usize)],
        Reduce::Projection { k } => vec![plain(1, projection::sums(shape.len(), k as usize))],
    };
    parts.retain(|part| part.shape.len() > 0);
    parts
}
