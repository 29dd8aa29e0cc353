//! One encoded tensor: its recipe, then its planes. Here the three slots are put one after the other, and undone.
//!
//! What a recipe's first slot leaves is one part or several: a part is a plane of values, and before it a plane of
//! indices if its places are not known otherwise. Only low rank has more than one: both factors and the remainder.

mod decode;
mod encode;

pub(crate) use decode::{Section, Sink};
pub(crate) use encode::{Encoded, Input, encode};

use crate::layout::Shape;
use crate::reduce::{Reduce, projection};

/// Values handled at a time.
const BLOCK: usize = 4096;

/// What one part of a section holds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    /// Whether its places are sent.
    indexed: bool,
    /// The shape of its values.
    shape: Shape,
}

/// The parts of a section, those without a value left out.
fn parts(reduce: Reduce, shape: Shape) -> Vec<Part> {
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

/// Bytes of one section by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneBytes {
    /// The recipe.
    pub recipe: usize,
    /// The indices.
    pub indices: usize,
    /// The scales.
    pub scales: usize,
    /// The values.
    pub values: usize,
}

impl PlaneBytes {
    /// The whole section.
    pub fn total(&self) -> usize {
        self.recipe + self.indices + self.scales + self.values
    }
}

/// Bytes that the planes of one section could not go below: the order-0 entropy of those that are entropy coded, the size
/// of the others; of the indices the logarithm of the number of supports of the same size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PlaneBounds {
    /// The indices.
    pub indices: f64,
    /// The scales.
    pub scales: f64,
    /// The values.
    pub values: f64,
}

impl PlaneBounds {
    /// The whole section, without its recipe.
    pub fn total(&self) -> f64 {
        self.indices + self.scales + self.values
    }
}

/// Whether no value is NaN or infinite.
pub(crate) fn all_finite(values: &[f32]) -> bool {
    const INFINITY: i32 = f32::INFINITY.to_bits() as i32;
    let not_finite = |value: &f32| (value.to_bits() & 0x7fff_ffff) as i32 >= INFINITY;
    !values.iter().fold(false, |any, value| any | not_finite(value))
}
