//! Models and updates as safetensors files: conversion to and from a [`Layout`](crate::Layout) and one flat vector of
//! `f32`.
//!
//! Works on bytes; opening and replacing files is up to the caller. Allocates nothing beyond the size of the file.
//!
//! | | reads | writes |
//! |---|---|---|
//! | models with types and roles | [`TensorFile`] | [`FilePlan`] |
//! | large models, one tensor at a time | [`TensorReader`] | |
//! | frozen tensors of a model | [`BasePlan`], without loading them | [`BasePlan`] |
//! | updates as one flat vector of trained `f32`; other tensors stay unchanged | [`Weights`] | [`to_safetensors_with`] |

pub(crate) mod base;
pub(crate) mod convert;
pub(crate) mod file;
pub(crate) mod foreign;
pub(crate) mod header;
pub(crate) mod integers;
pub(crate) mod notes;
pub(crate) mod plan;
pub(crate) mod reader;
pub(crate) mod tensors;

pub use base::BasePlan;
pub use file::{Weights, expect_finite, expect_same, expect_squares, to_safetensors, to_safetensors_with};
pub use header::{Envelope, read_notes};
pub use integers::IntegerTensor;
pub use notes::{KINDS, LEARNER, Notes, SEED};
pub use plan::{FilePlan, handed_out, round_role_to_types, round_to_types};
pub use reader::TensorReader;
pub use tensors::{StoredTensor, TensorFile};
