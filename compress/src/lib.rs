//! Compression of model updates for federated learning.
//!
//! An update is one `f32` vector laid out by a [`Layout`]. A [`Spec`] (what the user asked for) is resolved per
//! tensor into a `Recipe` (plain numbers), which is the header of the tensor's section on the wire:
//!
//! ```text
//! x [n] f32 --reduce--> planes (f32 values, u32 indices) --quantize--> symbols, scales --code--> bytes
//! ```
//!
//! An [`Encoder`] carries what compression left unsent (the *residual*) from round to round; a [`Frame`] is the
//! decoder's view of one encoded update, and needs nothing but the layout.
//!
//! This crate never touches a socket, a clock or a source of randomness: seeds are arguments.

mod code;
mod digest;
mod encoder;
mod error;
mod frame;
mod layout;
mod memory;
mod quantize;
mod recipe;
mod reduce;
mod rng;
mod seal;
mod section;
mod snapshot;
mod spec;
mod state;
mod wire;

pub use code::Code;
pub use digest::Digest;
pub use encoder::{Encoder, Pending, Stages, Verdict};
pub use error::Error;
pub use frame::{Frame, FrameHeader, FrameKind, SectionInfo};
pub use layout::{Layout, MAX_DIMS, MAX_NAME, MAX_TENSORS, MAX_VALUES, Tensor};
pub use quantize::{Quantize, QuantizeSpec, Rounding, Uniform};
pub use recipe::Recipe;
pub use reduce::{Density, Reduce, ReduceSpec};
pub use section::PlaneBytes;
pub use snapshot::snapshot;
pub use spec::{Decay, Memory, Method, Rule, Spec, When};
