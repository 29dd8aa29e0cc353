//! The layer on other devices than the CPU.

use candle_core::{DType, Result, Tensor};

use super::super::tensors::as_f32;

/// What a backward pass needs.
pub(super) struct Pass {
    dtype: DType,
    /// `[len * batch, inputs]`, as the next two in the type of products.
    x: Tensor,
    input: Tensor,
    recurrent: Tensor,
    steps: Steps,
}

/// Of all tokens. Shapes: `[len, batch, ..]`.
struct Steps {
    /// Input, forget, an unused and output gate: `4 * hidden`.
    gates: Tensor,
    /// `hidden` each.
    candidates: Tensor,
    cells: Tensor,
    states: Tensor,
}

/// As [`super::lstm`], of its inputs, with products in `dtype`. The tokens of all texts are made ready in one product.
pub(super) fn forward(
    [x, input, recurrent, input_bias, hidden_bias]: [Tensor; 5],
    dtype: DType,
) -> Result<(Tensor, Pass)> {
    let ((batch, len, inputs), hidden) = (x.dims3()?, recurrent.dim(1)?);
    let x = x.to_dtype(dtype)?.transpose(0, 1)?.reshape((len * batch, inputs))?;
    let (input, recurrent) = (input.to_dtype(dtype)?, recurrent.to_dtype(dtype)?);
    let sums = as_f32(&x.matmul(&input.t()?)?)?.broadcast_add(&(input_bias + hidden_bias)?)?;
    let steps = Steps::new(&sums.reshape((len, batch, 4 * hidden))?, &recurrent)?;
    let out = steps.states.transpose(0, 1)?.contiguous()?;
    let pass = Pass {
        dtype,
        x,
        input,
        recurrent,
        steps,
    };
    Ok((out, pass))
}

impl Pass {
    /// Gradients of the inputs, as far as they are wanted, for that of the result.
    pub(super) fn backward(self, grad: &Tensor, wanted: [bool; 5]) -> Result<[Option<Tensor>; 5]> {
        let (dtype, (len, batch, _)) = (self.dtype, self.steps.states.dims3()?);
        let d_sums = self
            .steps
            .backward(&grad.transpose(0, 1)?.contiguous()?, &self.recurrent)?;
        let rows = |t: &Tensor, first, count| {
            let width = t.dim(2)?;
            t.narrow(0, first, count)?.reshape((count * batch, width))
        };
        let d = rows(&d_sums, 0, len)?;
        let bias = d.sum(0)?;
        // Token `t` meets the state of token `t - 1`.
        let d_recurrent = || match len {
            1 => as_f32(&self.recurrent.zeros_like()?),
            _ => {
                let later = rows(&d_sums, 1, len - 1)?.to_dtype(dtype)?;
                as_f32(
                    &later
                        .t()?
                        .matmul(&rows(&self.steps.states, 0, len - 1)?.to_dtype(dtype)?)?,
                )
            }
        };
        let d_recurrent = wanted[2].then(d_recurrent).transpose()?;
        let d = d.to_dtype(dtype)?;
        let d_input = wanted[1].then(|| as_f32(&d.t()?.matmul(&self.x)?)).transpose()?;
        let d_x = || {
            let d_x = as_f32(&d.matmul(&self.input)?)?.reshape((len, batch, ()))?;
            d_x.transpose(0, 1)?.contiguous()
        };
        let d_x = wanted[0].then(d_x).transpose()?;
        Ok([d_x, d_input, d_recurrent, Some(bias.clone()), Some(bias)])
    }
}

/// `x w` in the type of `w`, as `f32`.
fn by_weights(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    as_f32(&x.to_dtype(w.dtype())?.matmul(w)?)
}

impl Steps {
    /// Gates, cells and states, from what the gates' inputs are without the states. Shapes: `sums: [len, batch, 4 * hidden]`,
    /// `w: [4 * hidden, hidden]`.
    fn new(sums: &Tensor, w: &Tensor) -> Result<Self> {
        let (len, hidden) = (sums.dim(0)?, w.dim(1)?);
        let turned = w.t()?;
        let (mut gates, mut candidates, mut cells, mut states) = (vec![], vec![], vec![], vec![]);
        for at in 0..len {
            let mut z = sums.get(at)?;
            if let Some(state) = states.last() {
                z = (z + by_weights(state, &turned)?)?;
            }
            // The sigmoid of all four quarters; that of the third, the candidate's, is not used.
            let gate = z.affine(0.5, 0.0)?.tanh()?.affine(0.5, 0.5)?;
            let quarter = |which: usize| gate.narrow(1, which * hidden, hidden);
            let candidate = z.narrow(1, 2 * hidden, hidden)?.tanh()?;
            let mut cell = (quarter(0)? * &candidate)?;
            if let Some(last) = cells.last() {
                cell = (cell + (quarter(1)? * last)?)?;
            }
            states.push((quarter(3)? * cell.tanh()?)?);
            gates.push(gate);
            candidates.push(candidate);
            cells.push(cell);
        }
        Ok(Self {
            gates: Tensor::stack(&gates, 0)?,
            candidates: Tensor::stack(&candidates, 0)?,
            cells: Tensor::stack(&cells, 0)?,
            states: Tensor::stack(&states, 0)?,
        })
    }

    /// Gradients of the gates' inputs, `[len, batch, 4 * hidden]`. Shapes: `grad: [len, batch, hidden]`, `w: [4 * hidden, hidden]`.
    fn backward(&self, grad: &Tensor, w: &Tensor) -> Result<Tensor> {
        let Self {
            gates,
            candidates,
            cells,
            ..
        } = self;
        let (len, batch, hidden) = candidates.dims3()?;
        // What a change of cell or state changes each gate's input by, for all tokens at once.
        let slope = (gates * (1.0 - gates)?)?;
        let quarter = |of: &Tensor, which: usize| of.narrow(2, which * hidden, hidden);
        let last = cells.pad_with_zeros(0, 1, 0)?.narrow(0, 0, len)?;
        let ends = cells.tanh()?;
        let through = (ends.sqr()?.affine(-1.0, 1.0)? * quarter(gates, 3)?)?;
        let by_cell = [
            (candidates * quarter(&slope, 0)?)?,
            (last * quarter(&slope, 1)?)?,
            (candidates.sqr()?.affine(-1.0, 1.0)? * quarter(gates, 0)?)?,
        ];
        let by_cell = Tensor::stack(&by_cell, 2)?;
        let by_state = (ends * quarter(&slope, 3)?)?;
        let forget = quarter(gates, 1)?;
        let (mut d_cell, mut d_sums): (Option<Tensor>, Vec<Tensor>) = (None, Vec::with_capacity(len));
        for at in (0..len).rev() {
            let mut d_state = grad.get(at)?;
            if let Some(later) = d_sums.last() {
                d_state = (d_state + by_weights(later, w)?)?;
            }
            let mut d = (&d_state * through.get(at)?)?;
            if let Some(later) = d_cell {
                d = (d + later)?;
            }
            let inner = by_cell
                .get(at)?
                .broadcast_mul(&d.unsqueeze(1)?)?
                .reshape((batch, 3 * hidden))?;
            let output = (by_state.get(at)? * d_state)?;
            d_sums.push(Tensor::cat(&[inner, output], 1)?);
            d_cell = Some((d * forget.get(at)?)?);
        }
        d_sums.reverse();
        Tensor::stack(&d_sums, 0)
    }
}
