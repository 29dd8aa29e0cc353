//! What the encoder of a section takes and returns.

use std::sync::Arc;

use crate::code::method::CodeSpec;
use crate::layout::Shape;
use crate::quantize::QuantizeSpec;
use crate::reduce::Reduction;
use crate::reduce::components::LeadingComponents;
use crate::rng::KeyedRng;
use crate::stages::Stages;

/// One tensor, and how it is to be encoded.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    /// Finite, not empty.
    pub(crate) values: &'a [f32],
    pub(crate) shape: Shape,
    pub(crate) selection: Reduction,
    /// Components that are sent apart from the values; then the quantiser is a dead zone of one step for all.
    pub(crate) leading: Option<Arc<LeadingComponents>>,
    /// Magnitude at which values that are sent one by one are cut off.
    pub(crate) clip: Option<f32>,
    pub(crate) quantize: QuantizeSpec,
    pub(crate) code: CodeSpec,
    pub(crate) rng: KeyedRng,
    /// No memory will make good for what is not sent.
    pub(crate) unbiased: bool,
    /// Threads that may work on it.
    pub(crate) threads: usize,
}

/// The section of a tensor.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stages: Stages,
    /// The minor version of the format that is needed to read it.
    pub(crate) minor: u8,
}
