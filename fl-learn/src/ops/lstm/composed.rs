//! The layer on other devices than the CPU.

use candle_core::{Result, Tensor};

use super::super::tape::Tape;
use super::super::tensors::as_f32;
use super::weights::LstmWeights;

/// What a backward pass needs. Shapes: `[len, batch, ..]`.
struct Pass {
    /// Input, forget, an unused and output gate: `4 * hidden`.
    gates: Tensor,
    /// `hidden` each.
    candidates: Tensor,
    cells: Tensor,
    states: Tensor,
}

/// As [`super::lstm`], of shapes that agree. The tokens of all texts are made ready in one product.
pub(super) fn forward(tape: &mut Tape, x: &Tensor, weights: LstmWeights<'_>) -> Result<Tensor> {
    let ((batch, len, inputs), hidden) = (x.dims3()?, weights.hidden.dim(1)?);
    let dtype = tape.operand_type(x);
    let operand = |t: &Tensor| t.detach().to_dtype(dtype);
    let by_time = operand(x)?.transpose(0, 1)?.reshape((len * batch, inputs))?;
    let (input, recurrent) = (operand(weights.input)?, operand(weights.hidden)?);
    let bias = (weights.input_bias.detach() + weights.hidden_bias.detach())?;
    let sums = as_f32(&by_time.matmul(&input.t()?)?)?.broadcast_add(&bias)?;
    let pass = steps(&sums.reshape((len, batch, 4 * hidden))?, &recurrent)?;
    let out = pass.states.transpose(0, 1)?.contiguous()?;
    let LstmWeights {
        input: w,
        hidden: u,
        input_bias,
        hidden_bias,
    } = weights;
    let like_u = u.detach();
    let all = [x, w, u, input_bias, hidden_bias];
    Ok(tape.composition(all, out, move |grad, wanted| {
        let d_sums = pass.backward(&grad.transpose(0, 1)?.contiguous()?, &recurrent)?;
        let rows = |t: &Tensor, first, count| {
            let width = t.dim(2)?;
            t.narrow(0, first, count)?.reshape((count * batch, width))
        };
        let d = rows(&d_sums, 0, len)?;
        let bias = d.sum(0)?;
        // Token `t` meets the state of token `t - 1`.
        let du = || match len {
            1 => like_u.zeros_like(),
            _ => {
                let later = rows(&d_sums, 1, len - 1)?.to_dtype(dtype)?;
                as_f32(&later.t()?.matmul(&rows(&pass.states, 0, len - 1)?.to_dtype(dtype)?)?)
            }
        };
        let du = wanted[2].then(du).transpose()?;
        let d = d.to_dtype(dtype)?;
        let dw = wanted[1].then(|| as_f32(&d.t()?.matmul(&by_time)?)).transpose()?;
        let dx = || {
            let dx = as_f32(&d.matmul(&input)?)?.reshape((len, batch, inputs))?;
            dx.transpose(0, 1)?.contiguous()
        };
        Ok([wanted[0].then(dx).transpose()?, dw, du, Some(bias.clone()), Some(bias)])
    }))
}

/// `x w` in the type of `w`, as `f32`.
fn by_weights(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    as_f32(&x.to_dtype(w.dtype())?.matmul(w)?)
}

/// Gates, cells and states, from what the gates' inputs are without the states. Shapes: `sums: [len, batch, 4 * hidden]`,
/// `w: [4 * hidden, hidden]`.
fn steps(sums: &Tensor, w: &Tensor) -> Result<Pass> {
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
    Ok(Pass {
        gates: Tensor::stack(&gates, 0)?,
        candidates: Tensor::stack(&candidates, 0)?,
        cells: Tensor::stack(&cells, 0)?,
        states: Tensor::stack(&states, 0)?,
    })
}

impl Pass {
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
