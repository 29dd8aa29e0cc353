//! The weights of a layer of long short-term memory.

use candle_core::Tensor;

/// The weights of a layer. The gates are in PyTorch's order: input, forget, cell, output.
#[derive(Debug, Clone, Copy)]
pub struct LstmWeights<'a> {
    /// `[4 * hidden, inputs]`.
    pub input: &'a Tensor,
    /// `[4 * hidden, hidden]`.
    pub hidden: &'a Tensor,
    /// `[4 * hidden]`.
    pub input_bias: &'a Tensor,
    /// `[4 * hidden]`.
    pub hidden_bias: &'a Tensor,
}
