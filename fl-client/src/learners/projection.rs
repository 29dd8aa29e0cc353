//! A linear layer of a decoder.

use candle_core::{Result, Tensor};

use crate::ops::{self, Tape};

/// `x w^T + bias`.
#[derive(Debug)]
pub(super) struct Projection {
    weight: Tensor,
    bias: Option<Tensor>,
    /// The weight is `[inputs, outputs]`.
    inputs_first: bool,
}

impl Projection {
    pub(super) fn new(weight: Tensor, bias: Option<Tensor>, inputs_first: bool) -> Self {
        Self {
            weight,
            bias,
            inputs_first,
        }
    }

    /// Shapes: `x: [rows, inputs]`; returns `[rows, outputs]`.
    pub(super) fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_ref();
        match self.inputs_first {
            true => ops::linear_inputs_first(tape, x, &self.weight, bias),
            false => ops::linear(tape, x, &self.weight, bias, false),
        }
    }
}
