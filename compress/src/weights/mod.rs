//! Models and updates as safetensors files: a [`Layout`] and one flat vector of `f32`, and back.
//!
//! Works on bytes: who opens files, and how they are replaced, is the caller's affair. Values of type F32, F16 and BF16
//! are read, F32 is written; tensors of whole numbers and truth values are kept as they are. Reading allocates nothing
//! that the file itself does not fill.

pub(crate) mod file;
pub(crate) mod foreign;
pub(crate) mod header;
pub(crate) mod integers;
pub(crate) mod notes;

pub use file::{Weights, expect_finite, expect_same, to_safetensors, to_safetensors_with};
pub use header::{Envelope, read_notes};
pub use integers::IntegerTensor;
pub use notes::{LEARNER, Notes, SEED};
