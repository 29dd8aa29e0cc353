//! Models and updates as safetensors files: conversion to and from a [`Layout`](crate::Layout) and one flat vector of
//! `f32`.
//!
//! Works on bytes; opening and replacing files is up to the caller. Reads values of type F32, F16 and BF16 and writes
//! F32. Integer and Boolean tensors stay unchanged. Allocates nothing beyond the size of the file.

pub(crate) mod file;
pub(crate) mod foreign;
pub(crate) mod header;
pub(crate) mod integers;
pub(crate) mod notes;

pub use file::{Weights, expect_finite, expect_same, to_safetensors, to_safetensors_with};
pub use header::{Envelope, read_notes};
pub use integers::IntegerTensor;
pub use notes::{LEARNER, Notes, SEED};
