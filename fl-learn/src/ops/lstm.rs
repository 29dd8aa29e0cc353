//! A layer of long short-term memory over whole texts.

mod on_gpu;

use candle_core::{Result, Tensor, bail};

use super::gemm::{View, gemm, gemm_new, gemm_strided};
use super::scratch;
use super::shape::expect;
use super::simd::{sigmoid, sum, tanh, vectorized};
use super::tape::Tape;

/// The weights of a layer. The gates are in PyTorch's order: input, forget, cell, output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LstmWeights<'a> {
    /// `[4 * hidden, inputs]`.
    pub(crate) input: &'a Tensor,
    /// `[4 * hidden, hidden]`.
    pub(crate) hidden: &'a Tensor,
    /// `[4 * hidden]`.
    pub(crate) input_bias: &'a Tensor,
    /// `[4 * hidden]`.
    pub(crate) hidden_bias: &'a Tensor,
}

/// The hidden states of one layer, from zero states (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et
/// al. 2000). Shapes: `x: [batch, len, inputs]`; returns `[batch, len, hidden]`.
pub(crate) fn lstm(tape: &mut Tape, x: &Tensor, weights: LstmWeights<'_>) -> Result<Tensor> {
    let ((batch, len, inputs), (_, hidden)) = (x.dims3()?, weights.hidden.dims2()?);
    if batch * len * hidden == 0 {
        bail!("a text of no token, or no hidden state: {:?}", x.dims());
    }
    let LstmWeights {
        input,
        hidden: recurrent,
        input_bias,
        hidden_bias,
    } = weights;
    expect("`weight_hh` of a layer", recurrent, &[4 * hidden, hidden])?;
    expect("`weight_ih` of a layer", input, &[4 * hidden, inputs])?;
    expect("`bias_ih` of a layer", input_bias, &[4 * hidden])?;
    expect("`bias_hh` of a layer", hidden_bias, &[4 * hidden])?;
    let extents = Extents {
        batch,
        len,
        inputs,
        hidden,
    };
    let products = tape.products();
    tape.apply(
        [x, input, recurrent, input_bias, hidden_bias],
        (batch, len, hidden),
        |[x, input, recurrent, input_bias, hidden_bias], wanted| {
            let x_by_time = extents.by_time(x, inputs);
            let bias: Vec<f32> = input_bias.iter().zip(hidden_bias).map(|(a, b)| a + b).collect();
            let pass = extents.forward(&x_by_time, input, recurrent, &bias);
            let out = extents.output(&pass.states);
            (out, move |grad, [_, input, recurrent, ..]| {
                let d = extents.backward(pass, &x_by_time, input, recurrent, &grad, wanted[0]);
                [d.x, Some(d.input), Some(d.hidden), Some(d.bias.clone()), Some(d.bias)]
            })
        },
        |inputs, wanted| {
            let (out, pass) = on_gpu::forward(inputs, products)?;
            Ok((out, move |grad| pass.backward(&grad, wanted)))
        },
    )
}

#[derive(Debug, Clone, Copy)]
struct Extents {
    batch: usize,
    len: usize,
    inputs: usize,
    hidden: usize,
}

/// What a backward pass needs. Column `t * batch + b` of each matrix is token `t` of text `b`, so that one step is a block
/// of columns in which the texts lie side by side.
struct Pass {
    /// Input, forget, cell and output gate after their functions, `[4 * hidden, len * batch]`.
    gates: Vec<f32>,
    /// Cell states, `[hidden, len * batch]`.
    cells: Vec<f32>,
    /// Hidden states, `[hidden, len * batch]`.
    states: Vec<f32>,
}

struct Gradients {
    input: Vec<f32>,
    hidden: Vec<f32>,
    bias: Vec<f32>,
    x: Option<Vec<f32>>,
}

impl Extents {
    fn columns(&self) -> usize {
        self.len * self.batch
    }

    /// `[batch, len, width]` as `[len * batch, width]`.
    fn by_time(&self, values: &[f32], width: usize) -> Vec<f32> {
        let mut out = Vec::with_capacity(values.len());
        for t in 0..self.len {
            for b in 0..self.batch {
                out.extend_from_slice(&values[(b * self.len + t) * width..][..width]);
            }
        }
        out
    }

    /// The reverse of [`Extents::by_time`].
    fn by_text(&self, values: &[f32], width: usize) -> Vec<f32> {
        let mut out = Vec::with_capacity(values.len());
        for b in 0..self.batch {
            for t in 0..self.len {
                out.extend_from_slice(&values[(t * self.batch + b) * width..][..width]);
            }
        }
        out
    }

    /// `[hidden, len * batch]` as `[batch, len, hidden]`.
    fn output(&self, states: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; states.len()];
        for (unit, row) in states.chunks_exact(self.columns()).enumerate() {
            for (column, state) in row.iter().enumerate() {
                let t = column / self.batch;
                let b = column % self.batch;
                out[(b * self.len + t) * self.hidden + unit] = *state;
            }
        }
        out
    }

    /// `[batch, len, hidden]` as `[hidden, len * batch]`.
    fn columns_of(&self, values: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; values.len()];
        for (at, row) in values.chunks_exact(self.hidden).enumerate() {
            let column = at % self.len * self.batch + at / self.len;
            for (unit, value) in row.iter().enumerate() {
                out[unit * self.columns() + column] = *value;
            }
        }
        out
    }

    fn forward(&self, x: &[f32], w_input: &[f32], w_hidden: &[f32], bias: &[f32]) -> Pass {
        let n = self.columns();
        let h = self.hidden;
        let b = self.batch;
        let mut gates = Vec::with_capacity(4 * h * n);
        bias.iter().for_each(|bias| gates.extend(std::iter::repeat_n(*bias, n)));
        let w_input = View::new(w_input, 4 * h, self.inputs);
        gemm(&mut gates, w_input, View::new(x, n, self.inputs).t(), true);
        let [mut cells, mut states] = [(); 2].map(|()| vec![0.0; h * n]);
        for t in 0..self.len {
            if let Some(before) = t.checked_sub(1) {
                let state = View::strided(&states[before * b..], h, b, n);
                gemm_strided(&mut gates[t * b..], n, View::new(w_hidden, 4 * h, h), state, true);
            }
            vectorized(
                #[inline(always)]
                || self.step(&mut gates, &mut cells, &mut states, t),
            );
        }
        Pass { gates, cells, states }
    }

    /// Gates, cells and states of token `t` from the sums of the gates' inputs.
    #[inline(always)]
    fn step(&self, gates: &mut [f32], cells: &mut [f32], states: &mut [f32], t: usize) {
        let n = self.columns();
        let h = self.hidden;
        let b = self.batch;
        let (input, gates) = gates.split_at_mut(h * n);
        let (forget, gates) = gates.split_at_mut(h * n);
        let (candidate, output) = gates.split_at_mut(h * n);
        for unit in 0..h {
            let here = unit * n + t * b..unit * n + (t + 1) * b;
            let (before, cell) = cells[unit * n..].split_at_mut(t * b);
            let before = &before[before.len().saturating_sub(b)..];
            let rows = input[here.clone()].iter_mut().zip(&mut forget[here.clone()]);
            let rows = rows.zip(candidate[here.clone()].iter_mut().zip(&mut output[here.clone()]));
            let ends = cell.iter_mut().zip(&mut states[here]);
            for (at, (((i, f), (g, o)), (cell, state))) in rows.zip(ends).enumerate() {
                (*i, *f, *g, *o) = (sigmoid(*i), sigmoid(*f), tanh(*g), sigmoid(*o));
                let kept = if t == 0 { 0.0 } else { *f * before[at] };
                *cell = kept + *i * *g;
                *state = *o * tanh(*cell);
            }
        }
    }

    fn backward(
        &self,
        pass: Pass,
        x: &[f32],
        w_input: &[f32],
        w_hidden: &[f32],
        grad: &[f32],
        x_wanted: bool,
    ) -> Gradients {
        let n = self.columns();
        let h = self.hidden;
        let b = self.batch;
        let Pass {
            mut gates,
            cells,
            states,
        } = pass;
        let mut d_states = self.columns_of(grad);
        let w_hidden_view = View::new(w_hidden, 4 * h, h);
        scratch::with(h * b, |d_cell| {
            d_cell.fill(0.0);
            for t in (0..self.len).rev() {
                vectorized(
                    #[inline(always)]
                    || self.step_grad(&mut gates, &cells, &d_states, d_cell, t),
                );
                if let Some(before) = t.checked_sub(1) {
                    let d_gates = View::strided(&gates[t * b..], 4 * h, b, n);
                    gemm_strided(&mut d_states[before * b..], n, w_hidden_view.t(), d_gates, true);
                }
            }
        });
        let d_gates = View::new(&gates, 4 * h, n);
        let mut d_hidden = vec![0.0; 4 * h * h];
        if self.len > 1 {
            // Token `t` meets the state of token `t - 1`: the same columns, shifted by one step.
            let later = View::strided(&gates[b..], 4 * h, n - b, n);
            let states = View::strided(&states, h, n - b, n);
            gemm(&mut d_hidden, later, states.t(), false);
        }
        let d_input = gemm_new(d_gates, View::new(x, n, self.inputs));
        let d_x = x_wanted.then(|| {
            let d_x = gemm_new(d_gates.t(), View::new(w_input, 4 * h, self.inputs));
            self.by_text(&d_x, self.inputs)
        });
        Gradients {
            input: d_input,
            hidden: d_hidden,
            bias: gates.chunks_exact(n).map(sum).collect(),
            x: d_x,
        }
    }

    /// Replaces the gates of token `t` by the gradients of their inputs. `d_cell: [hidden, batch]` passes from token to
    /// token.
    #[inline(always)]
    fn step_grad(&self, gates: &mut [f32], cells: &[f32], d_states: &[f32], d_cell: &mut [f32], t: usize) {
        let n = self.columns();
        let h = self.hidden;
        let b = self.batch;
        let (input, gates) = gates.split_at_mut(h * n);
        let (forget, gates) = gates.split_at_mut(h * n);
        let (candidate, output) = gates.split_at_mut(h * n);
        for (unit, d_cell) in d_cell.chunks_exact_mut(b).enumerate() {
            let here = unit * n + t * b..unit * n + (t + 1) * b;
            let before = &cells[unit * n..][..t * b];
            let before = &before[before.len().saturating_sub(b)..];
            let rows = input[here.clone()].iter_mut().zip(&mut forget[here.clone()]);
            let rows = rows.zip(candidate[here.clone()].iter_mut().zip(&mut output[here.clone()]));
            let ends = cells[here.clone()].iter().zip(&d_states[here]).zip(d_cell);
            for (at, (((i, f), (g, o)), ((cell, d_state), d_cell))) in rows.zip(ends).enumerate() {
                let through = tanh(*cell);
                let d = *d_cell + d_state * *o * (1.0 - through * through);
                let before = if t == 0 { 0.0 } else { before[at] };
                *d_cell = d * *f;
                (*i, *f, *g, *o) = (
                    d * *g * *i * (1.0 - *i),
                    d * before * *f * (1.0 - *f),
                    d * *i * (1.0 - *g * *g),
                    d_state * through * *o * (1.0 - *o),
                );
            }
        }
    }
}
