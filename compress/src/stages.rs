//! Bytes of an update after each stage of the codec.

use serde::{Deserialize, Serialize};

/// Bytes of one update after each stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Uncompressed: four bytes per value.
    pub fp32: u64,
    /// After reduce: four bytes per kept value and four per index.
    pub reduced: u64,
    /// After quantize: symbols at their plain width, scales included; four bytes per index.
    pub quantized: u64,
    /// After entropy coding: the sum of the sections.
    pub coded: u64,
    /// The whole frame.
    pub framed: u64,
    /// Lower bound of coding in bytes: the order-0 entropy of each entropy-coded plane, the logarithm of the number of supports
    /// of the same size for indices, and the size of planes that are packed by request.
    pub entropy_bound: f64,
}

impl Stages {
    pub(crate) fn add(&mut self, section: &Self) {
        self.fp32 += section.fp32;
        self.reduced += section.reduced;
        self.quantized += section.quantized;
        self.coded += section.coded;
        self.entropy_bound += section.entropy_bound;
    }
}
