//! A linear layer of a decoder, with an adapter if it is fine-tuned.

use std::borrow::Cow;

use candle_core::{DType, Result, Tensor};

use crate::ops::{self, Tape};

/// `x w^T + bias`, plus the adapter's share.
#[derive(Debug)]
pub(super) struct Projection {
    weight: Tensor,
    bias: Option<Tensor>,
    /// The weight is `[inputs, outputs]`.
    inputs_first: bool,
    adapter: Option<Adapter>,
}

/// `scale b a dropout(x)` (Hu et al. 2021).
#[derive(Debug)]
pub(super) struct Adapter {
    /// `[rank, inputs]`.
    pub(super) a: Tensor,
    /// `[outputs, rank]`.
    pub(super) b: Tensor,
    pub(super) scale: f32,
    pub(super) dropout: f32,
}

impl Projection {
    pub(super) fn new(weight: Tensor, bias: Option<Tensor>, inputs_first: bool) -> Self {
        Self {
            weight,
            bias,
            inputs_first,
            adapter: None,
        }
    }

    pub(super) fn adapted(self, adapter: Adapter) -> Self {
        Self {
            adapter: Some(adapter),
            ..self
        }
    }

    /// Shapes: `x: [rows, inputs]`; returns `[rows, outputs]`.
    pub(super) fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let weight = self.weight_for(tape, x)?;
        let bias = self.bias.as_ref();
        let y = if self.inputs_first {
            ops::linear_inputs_first(tape, x, &weight, bias)?
        } else {
            ops::linear(tape, x, &weight, bias, false)?
        };
        let Some(adapter) = &self.adapter else { return Ok(y) };
        let x = ops::dropout(tape, x, adapter.dropout)?;
        let h = ops::linear(tape, &x, &adapter.a, None, false)?;
        let h = ops::linear(tape, &h, &adapter.b, None, false)?;
        ops::add_scaled(tape, &y, &h, adapter.scale)
    }

    /// Mean loss of `labels`, where this layer gives the logits. Shapes: `x: [rows, inputs]`, `labels: [rows]`.
    pub(super) fn cross_entropy(&self, tape: &mut Tape, x: &Tensor, labels: &[u32]) -> Result<Tensor> {
        if self.inputs_first || self.adapter.is_some() {
            let logits = self.forward(tape, x)?;
            return ops::cross_entropy(tape, &logits, labels);
        }
        let weight = self.weight_for(tape, x)?;
        ops::linear_cross_entropy(tape, x, &weight, self.bias.as_ref(), labels)
    }

    /// Frozen weights may be of a smaller type than the operands of products; a GPU converts them by itself.
    fn weight_for(&self, tape: &Tape, x: &Tensor) -> Result<Cow<'_, Tensor>> {
        Ok(if self.weight.dtype() == DType::F32 || !tape.is_native(x) {
            Cow::Borrowed(&self.weight)
        } else {
            Cow::Owned(ops::to_dtype(&self.weight, DType::F32)?)
        })
    }
}
