//! Compression of model updates for federated learning.
//!
//! An update is one `f32` vector laid out by a [`Layout`]. A [`Spec`] (what the user asked for) is resolved per
//! tensor into a `Recipe` (plain numbers), which is the header of the tensor's section on the wire:
//!
//! ```text
//! x [n] f32 --reduce--> planes (f32 values, u32 indices) --quantize--> symbols, scales --code--> bytes
//! ```
//!
//! An [`Encoder`] keeps the *residual* (the part of the update that was not sent) from round to round; a [`Frame`] is
//! the decoder's view of one encoded update, and needs only the layout.
//!
//! ```
//! use std::sync::Arc;
//! use fl_compress::{Encoder, Frame, FrameHeader, FrameKind, Layout, Spec, Ack};
//!
//! let layout = Arc::new(Layout::new([("bias", vec![3]), ("weight", vec![40, 50])])?);
//! let mut encoder = Encoder::new(Arc::clone(&layout), &Spec::default())?;
//! let mut delta: Vec<f32> = (0..2003).map(|i| (i as f32).sin()).collect();
//! let pending = encoder.encode(&mut delta, FrameHeader { kind: FrameKind::Update, round: 1, seed: 42 })?;
//!
//! // The receiver adds the update, times the client's weight.
//! let frame = Frame::parse(&pending.frame, &layout)?;
//! frame.verify()?;
//! let mut sum = vec![0.0; layout.len()];
//! frame.accumulate(0.1, &mut sum)?;
//!
//! encoder.settle(&pending, Ack::Accepted)?;
//! assert!(pending.frame.len() < 1000 && pending.stages.fp32 == 8012);
//! # Ok::<(), fl_compress::Error>(())
//! ```
//!
//! This crate uses no socket, clock or source of randomness: seeds are arguments.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod archive;
mod average;
mod budget;
mod code;
mod density;
mod digest;
pub mod duration;
mod encoder;
mod error;
mod fidelity;
mod finite;
mod forms;
mod frame;
#[doc(hidden)]
pub mod internals;
mod kind;
mod layout;
pub mod math;
mod memory;
mod pending;
mod quantize;
mod recipe;
mod reduce;
mod rng;
mod rounded;
mod rules;
mod section;
mod simd;
mod sink;
pub mod size;
mod snapshot;
mod space;
mod spec;
mod stages;
pub mod text;
mod threads;
pub mod weights;
pub mod wire;

pub use archive::Archive;
pub use average::{Average, MAX_AVERAGED};
pub use budget::estimate::BudgetEstimate;
pub use budget::watch::{BudgetWatch, OverBudget};
pub use code::method::{Code, CodeSpec};
pub use density::Density;
pub use digest::Digest;
pub use encoder::options::EncodeOptions;
pub use encoder::update::Encoder;
pub use error::Error;
pub use fidelity::Fidelity;
pub use forms::methods::MethodInfo;
pub use frame::decoded::Decoded;
pub use frame::header::{FrameHeader, FrameKind};
pub use frame::view::{Frame, SectionInfo};
pub use kind::{Kind, Kinds, doubtful, kinds};
pub use layout::{Dtype, Layout, MAX_DIMS, MAX_NAME, MAX_TENSORS, MAX_VALUES, Role, Tensor, TensorSpec};
pub use memory::Memory;
pub use memory::dgc::Dgc;
pub use memory::error_feedback::Decay;
pub use memory::method::{Encodes, MemoryInfo};
pub use pending::{Ack, Pending};
pub use quantize::dead_zone::Step;
pub use quantize::recipe::Quantize;
pub use quantize::rotated::Scale;
pub use quantize::types::*;
pub use quantize::uniform::{Norm, Rounding};
pub use recipe::Recipe;
pub use reduce::recipe::Reduce;
pub use reduce::types::*;
pub use rounded::ModelRounding;
pub use rules::bandit::BanditRule;
pub use rules::bits::{BitsBandit, BitsBy, BitsRule, BitsSpec, PricedBits};
pub use rules::density::DensitySpec;
pub use rules::entropy::{EntropyRule, energy_entropy};
pub use rules::entropy_rank::EntropyRank;
pub use rules::fisher::FisherRule;
pub use rules::rank::RankSpec;
pub use rules::schedule::{Course, Schedule};
pub use rules::spectrum::MAX_RANK;
pub use rules::variance::VarianceRule;
pub use section::planes::{PlaneBounds, PlaneBytes};
pub use snapshot::{rounded_snapshot, snapshot};
pub use space::{Basis, Space, SpaceSpec};
pub use spec::budget::Budget;
pub use spec::budget_bandit::BudgetBandit;
pub use spec::error_limit::ErrorLimit;
pub use spec::method::{Method, Rule, Small};
pub use spec::preset::Preset;
pub use spec::weight::Weight;
pub use spec::when::{When, name_matches};
pub use spec::{BufferPrecision, Spec};
pub use stages::Stages;

/// The available reducers (the first slot of a spec).
pub fn reducers() -> impl Iterator<Item = &'static MethodInfo> {
    reduce::METHODS.iter().map(|entry| &entry.info)
}

/// The available quantizers (the second slot of a spec).
pub fn quantizers() -> impl Iterator<Item = &'static MethodInfo> {
    quantize::METHODS.iter().map(|entry| &entry.info)
}

/// The available memories.
pub fn memories() -> impl Iterator<Item = &'static MemoryInfo> {
    memory::METHODS.iter().map(|entry| &entry.info)
}

/// The available rules for a density.
pub fn density_rules() -> impl Iterator<Item = &'static MethodInfo> {
    rules::density::METHODS.iter().map(|entry| &entry.info)
}
