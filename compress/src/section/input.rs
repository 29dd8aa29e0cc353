//! What the encoder of a section takes and returns.

use std::sync::Arc;

use crate::code::method::CodeSpec;
use crate::layout::Shape;
use crate::quantize::QuantizeSpec;
use crate::reduce::Reduction;
use crate::reduce::components::LeadingComponents;
use crate::rng::KeyedRng;
use crate::stages::Stages;

/// One tensor, and how to encode it.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    /// Finite, not empty.
    pub(crate) values: &'a [f32],
    pub(crate) shape: Shape,
    pub(crate) selection: Reduction,
    /// Components that are split off the values; the quantizer is then a dead zone with one step for all planes.
    pub(crate) leading: Option<Arc<LeadingComponents>>,
    /// Magnitude at which values of a support are clipped.
    pub(crate) clip: Option<f32>,
    pub(crate) quantize: QuantizeSpec,
    pub(crate) code: CodeSpec,
    pub(crate) rng: KeyedRng,
    /// Without memory, what is not sent is lost: the method must be unbiased.
    pub(crate) unbiased: bool,
    /// Number of threads to use.
    pub(crate) threads: usize,
}

/// The section of a tensor.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stages: Stages,
    /// Minor version of the format that brought the recipe.
    pub(crate) minor: u8,
}
