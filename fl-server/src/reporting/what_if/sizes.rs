//! Bytes after each stage, of one frame or of many.

use fl_compress::Stages;

/// Bytes after each stage of compression, summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sizes {
    /// Four bytes a value.
    pub(crate) fp32: u64,
    /// After reduce.
    pub(crate) reduced: u64,
    /// After quantize.
    pub(crate) quantized: u64,
    /// After code.
    pub(crate) coded: u64,
    /// Whole frames.
    pub(crate) framed: u64,
    /// Entropy bound of what was coded.
    pub(crate) bound: f64,
}

impl Sizes {
    /// Adds one frame's sizes. They are the client's claims: sums saturate.
    pub(crate) fn add(&mut self, stages: &Stages) {
        self.fp32 = self.fp32.saturating_add(stages.fp32);
        self.reduced = self.reduced.saturating_add(stages.reduced);
        self.quantized = self.quantized.saturating_add(stages.quantized);
        self.coded = self.coded.saturating_add(stages.coded);
        self.framed = self.framed.saturating_add(stages.framed);
        self.bound += stages.entropy_bound;
    }
}
