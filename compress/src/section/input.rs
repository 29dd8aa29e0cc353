//! Input and output of the encoder of a section.

use std::sync::Arc;

use crate::code::method::CodeSpec;
use crate::quantize::method::KnownPlane;
use crate::reduce::components::LeadingComponents;
use crate::reduce::method::{ReducerChoice, TensorValues};
use crate::stages::Stages;

/// One tensor and its codec.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    pub(crate) tensor: TensorValues<'a>,
    pub(crate) chosen: ReducerChoice,
    /// Components that are split off the values; the quantizer is then a dead zone with one step for all planes.
    pub(crate) leading: Option<Arc<LeadingComponents>>,
    pub(crate) code: CodeSpec,
}

impl EncodedSection {
    /// Its bytes, if its coder had not varied.
    pub(crate) fn unvaried(&self) -> f64 {
        (self.bytes.len() as f64 + self.saved).max(1.0)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct EncodedSection {
    pub(crate) bytes: Vec<u8>,
    /// Bytes that were saved to keep to a size; negative if they were added.
    pub(crate) saved: f64,
    /// What each part decodes to, where that is known.
    pub(crate) known: Vec<Option<Arc<dyn KnownPlane>>>,
    pub(crate) stages: Stages,
}
