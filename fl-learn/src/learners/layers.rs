//! Layers: named parameters and their operation.

use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;

use super::init::fan_in;
use super::model::Model;
use crate::ops::{self, Tape, Window};

/// Convolution, bias, relu and max-pool. Parameters: `name.weight: [filters, channels, rows, columns]` of images,
/// `[filters, channels, samples]` of signals; `name.bias: [filters]`.
#[derive(Debug)]
pub(super) struct Conv {
    weight: Tensor,
    bias: Tensor,
    window: Window,
}

impl Conv {
    pub(super) fn image(p: &VarBuilder<'_>, name: &str, shape: [usize; 4], pad: usize, pool: usize) -> Result<Self> {
        let pad = [pad, pad];
        let pool = [pool, pool];
        Self::new(p, name, &shape, Window { stride: 1, pad, pool })
    }

    pub(super) fn signal(
        p: &VarBuilder<'_>,
        name: &str,
        shape: [usize; 3],
        stride: usize,
        pool: usize,
    ) -> Result<Self> {
        let pad = [0, 0];
        let pool = [1, pool];
        Self::new(p, name, &shape, Window { stride, pad, pool })
    }

    fn new(p: &VarBuilder<'_>, name: &str, shape: &[usize], window: Window) -> Result<Self> {
        let p = p.pp(name);
        let init = fan_in(shape[1..].iter().product());
        Ok(Self {
            weight: p.get_with_hints(shape, "weight", init)?,
            bias: p.get_with_hints(shape[0], "bias", init)?,
            window,
        })
    }

    /// Shapes: `x: [batch, channels, rows, columns]`; a signal has one row.
    pub(super) fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let weight = match self.weight.dims() {
            &[filters, channels, samples] => tape.reshape(&self.weight, &[filters, channels, 1, samples])?,
            _ => self.weight.clone(),
        };
        ops::conv_relu_pool(tape, x, &weight, &self.bias, self.window)
    }
}

/// Fully connected layer. Parameters: `name.weight: [outputs, inputs]`, `name.bias: [outputs]`.
#[derive(Debug)]
pub(super) struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    pub(super) fn new(p: &VarBuilder<'_>, name: &str, inputs: usize, outputs: usize) -> Result<Self> {
        let p = p.pp(name);
        let init = fan_in(inputs);
        Ok(Self {
            weight: p.get_with_hints((outputs, inputs), "weight", init)?,
            bias: p.get_with_hints(outputs, "bias", init)?,
        })
    }

    /// Shapes: `x: [batch, inputs]`; returns `[batch, outputs]`.
    pub(super) fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        ops::linear(tape, x, &self.weight, Some(&self.bias), false)
    }

    /// As [`Linear::forward`], then relu.
    pub(super) fn relu(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        ops::linear(tape, x, &self.weight, Some(&self.bias), true)
    }
}

/// Convolutions, then linear layers with relu between them.
#[derive(Debug)]
pub(super) struct FeedForward {
    convolutions: Vec<Conv>,
    linear: Vec<Linear>,
}

impl FeedForward {
    /// Adds linear layers `fc1`, `fc2` and so on, of so many outputs each. `inputs`: values of an example behind the convolutions.
    pub(super) fn new(p: &VarBuilder<'_>, convolutions: Vec<Conv>, inputs: usize, outputs: &[usize]) -> Result<Self> {
        let before = std::iter::once(&inputs).chain(outputs);
        let sizes = before.zip(outputs).zip(1..);
        let linear = sizes.map(|((&from, &to), number)| Linear::new(p, &format!("fc{number}"), from, to));
        Ok(Self {
            linear: linear.collect::<Result<_>>()?,
            convolutions,
        })
    }
}

impl Model for FeedForward {
    fn forward(&self, tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in &self.convolutions {
            x = layer.forward(tape, &x)?;
        }
        let batch = x.dim(0)?;
        x = tape.reshape(&x, &[batch, x.elem_count() / batch.max(1)])?;
        for (at, layer) in self.linear.iter().enumerate() {
            let is_last = at + 1 == self.linear.len();
            x = if is_last {
                layer.forward(tape, &x)?
            } else {
                layer.relu(tape, &x)?
            };
        }
        Ok(x)
    }
}

/// Output extent of a valid convolution with a kernel of `kernel`, followed by a pool of `pool`.
pub(super) fn left(len: usize, kernel: usize, pool: usize) -> Result<usize> {
    match len.checked_sub(kernel - 1).map(|out| out / pool) {
        Some(out) if out > 0 => Ok(out),
        _ => candle_core::bail!("an extent of {len} is too small for a kernel of {kernel} and a pool of {pool}"),
    }
}
