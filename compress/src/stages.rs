//! Bytes of an update after each stage of the codec.

/// Bytes of one update after each stage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stages {
    /// Four bytes a value.
    pub fp32: u64,
    /// After reduce: four bytes a kept value and four an index.
    pub reduced: u64,
    /// After quantize, packed at its plain width, scales included; four bytes an index.
    pub quantized: u64,
    /// After entropy coding: the sum of the sections.
    pub coded: u64,
    /// The whole frame.
    pub framed: u64,
    /// Bytes that coding could not go below: order-0 entropy of each entropy-coded plane, the logarithm of the number of
    /// supports of the same size for indices, the size itself of planes that are packed as asked.
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
