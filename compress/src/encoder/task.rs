//! What an encoder hands on for one section, and the bytes that all sections may take.

use crate::section::input::Input;

/// One unit to be encoded, and what was learned of it.
#[derive(Debug)]
pub(crate) struct EncodeTask<'a> {
    pub(crate) input: Input<'a>,
    /// The second factor of the last time.
    pub(crate) warm: &'a mut Option<Vec<f32>>,
    /// Bits that coding took for each one foretold, the last time.
    pub(crate) ratio: &'a mut f64,
}

/// Bytes of the sections of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteLimit {
    pub(crate) bytes: u64,
    /// Whether more are an error. Otherwise what has no knob may take more, and the rest then next to nothing.
    pub(crate) is_firm: bool,
    /// Largest relative error of a unit with a step or a density: what that takes is taken, even if it is more than `bytes`.
    pub(crate) error: Option<f64>,
}
