//! The encoding task of one section, and the byte limit of all sections.

use crate::layout::Role;
use crate::quantize::QuantizeSpec;
use crate::reduce::components::Components;
use crate::section::input::Input;

/// One section to encode, and its state between frames.
#[derive(Debug)]
pub(crate) struct EncodeTask<'a> {
    pub(crate) input: Input<'a>,
    /// Role of the section's tensors.
    pub(crate) role: Role,
    /// Factor of the error in the budget.
    pub(crate) weight: f64,
    /// Second factor of the previous frame.
    pub(crate) warm: &'a mut Option<Vec<f32>>,
    /// Actual bits / estimated bits of the previous frame.
    pub(crate) ratio: &'a mut f64,
    /// The components of this frame, once they were searched for.
    pub(crate) components: Option<Components>,
}

impl EncodeTask<'_> {
    /// The same task, to be encoded before this one.
    pub(crate) fn again(&mut self) -> EncodeTask<'_> {
        EncodeTask {
            input: self.input.clone(),
            warm: &mut *self.warm,
            ratio: &mut *self.ratio,
            components: self.components.clone(),
            ..*self
        }
    }

    /// Sets the bits of uniform quantization; changes no other quantizer.
    pub(crate) fn set_bits(&mut self, bits: u32) {
        if let QuantizeSpec::Uniform(uniform) = &mut self.input.tensor.quantize {
            *uniform = uniform.with_bits(bits);
        }
    }
}

/// Limits of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameLimits {
    /// What the sections aim at; without it each section has its own step or density.
    pub(crate) budget: Option<ByteLimit>,
    /// What they do not exceed, if they can be so small.
    pub(crate) most: Option<ByteLimit>,
}

/// Limit on the bytes of all sections of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteLimit {
    pub(crate) bytes: u64,
    /// Whether buffers and counters count toward `bytes`. Otherwise they come on top.
    pub(crate) counts_aside: bool,
    /// Whether to fail if the sections take more than `bytes`. Otherwise they are as small as they can be: sections without
    /// a knob exceed the limit, and the others get almost nothing.
    pub(crate) is_firm: bool,
    /// Largest relative error of all sections with a knob (a step or a density) together, by the estimate. It takes precedence
    /// over `bytes`.
    pub(crate) error: Option<f64>,
}
