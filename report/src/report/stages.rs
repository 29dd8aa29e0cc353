//! Bytes of frames after each stage of compression.

use serde::Deserialize;

use crate::table::sums::sums;

sums! {
    /// Bytes of one frame after each stage of compression, or sums of them.
    #[derive(Copy, Deserialize)]
    #[serde(default)]
    pub struct StageBytes {
        /// Bytes before compression: 4 for each value.
        #[serde(alias = "fp32_up")]
        fp32: u64 ["B"],
        /// Bytes after reduce: 4 for each value kept and 4 for each index.
        #[serde(alias = "reduced_up")]
        reduced: u64 ["B"],
        /// Bytes after quantize: packed at plain width with their scales, and 4 for each index.
        #[serde(alias = "quantized_up")]
        quantized: u64 ["B"],
        /// Bytes after entropy coding.
        #[serde(alias = "coded_up")]
        coded: u64 ["B"],
        /// Bytes of whole frames.
        #[serde(alias = "framed_up")]
        framed: u64 ["B"],
        /// Order-0 entropy of the coded planes; only context coding can need fewer bytes.
        #[serde(skip_deserializing)]
        entropy_bound as "bound": f64 ["B"],
    }
}
