//! The shape of a model: names, shapes and offsets of its tensors in one flat `f32` vector.

use std::collections::BTreeMap;

use crate::digest::Digest;
use crate::error::Error;

/// Largest number of values a layout may hold: what a `u32` index can address.
pub const MAX_VALUES: usize = u32::MAX as usize;
/// Largest number of tensors a layout may hold.
pub const MAX_TENSORS: usize = 65_535;
/// Largest number of dimensions of one tensor.
pub const MAX_DIMS: usize = 8;
/// Longest tensor name in bytes.
pub const MAX_NAME: usize = 255;

/// One tensor of a [`Layout`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name, as in the model's safetensors file.
    pub name: String,
    /// Extent of each dimension, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Index of the tensor's first value in the flat vector.
    pub offset: usize,
    /// Number of values: the product of `shape`.
    pub len: usize,
}

/// A tensor as a matrix: the first dimension by the product of the others; a vector is one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl Shape {
    /// One row of `len` values.
    pub(crate) fn row(len: usize) -> Self {
        Self { rows: 1, cols: len }
    }

    pub(crate) fn len(self) -> usize {
        self.rows * self.cols
    }
}

impl Tensor {
    pub(crate) fn matrix(&self) -> Shape {
        match self.shape.as_slice() {
            [rows, _, ..] => Shape {
                rows: *rows,
                cols: self.len / rows,
            },
            _ => Shape::row(self.len),
        }
    }
}

/// Names, shapes and offsets of a model's tensors, sorted by name, without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    len: usize,
    fingerprint: u64,
}

impl Layout {
    /// Builds a layout from names and shapes, in any order.
    ///
    /// # Errors
    /// `Usage` if a name is empty, too long or given twice, a dimension is zero, or a limit is exceeded.
    pub fn new<N: Into<String>>(tensors: impl IntoIterator<Item = (N, Vec<usize>)>) -> Result<Self, Error> {
        let mut sorted = BTreeMap::new();
        for (name, shape) in tensors {
            let name = name.into();
            if name.is_empty() || name.len() > MAX_NAME {
                return Err(Error::Usage(format!(
                    "tensor name `{name}` must have 1 to {MAX_NAME} bytes"
                )));
            }
            if shape.len() > MAX_DIMS || shape.contains(&0) {
                return Err(Error::Usage(format!(
                    "tensor `{name}` has shape {shape:?}; at most {MAX_DIMS} dimensions, none of them zero"
                )));
            }
            if sorted.len() == MAX_TENSORS {
                return Err(Error::Usage(format!("a layout holds at most {MAX_TENSORS} tensors")));
            }
            if sorted.contains_key(&name) {
                return Err(Error::Usage(format!("tensor `{name}` is given twice")));
            }
            sorted.insert(name, shape);
        }
        let mut out = Vec::with_capacity(sorted.len());
        let mut offset = 0usize;
        for (name, shape) in sorted {
            let len = shape
                .iter()
                .try_fold(1usize, |n, &d| n.checked_mul(d))
                .filter(|&n| n <= MAX_VALUES - offset);
            let Some(len) = len else {
                return Err(Error::Usage(format!(
                    "tensor `{name}` makes the model larger than {MAX_VALUES} values"
                )));
            };
            out.push(Tensor {
                name,
                shape,
                offset,
                len,
            });
            offset += len;
        }
        let fingerprint = fingerprint(&out);
        Ok(Self {
            tensors: out,
            len: offset,
            fingerprint,
        })
    }

    /// The tensors, sorted by name; their ranges cover `0..len` without gaps.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Number of values in the flat vector.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the layout holds no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Short digest of names and shapes. A frame carries it, so that it cannot be decoded into another model.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn fingerprint(tensors: &[Tensor]) -> u64 {
    let mut bytes = Vec::new();
    for tensor in tensors {
        bytes.push(tensor.name.len() as u8);
        bytes.extend_from_slice(tensor.name.as_bytes());
        bytes.push(tensor.shape.len() as u8);
        tensor
            .shape
            .iter()
            .for_each(|&d| bytes.extend_from_slice(&(d as u64).to_le_bytes()));
    }
    Digest::of(&bytes).short()
}
