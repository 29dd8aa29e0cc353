//! Fully connected layers: bias and relu, if wanted, are part of the operation.

use candle_core::{Result, Tensor, bail};

use super::gemm::{View, gemm, gemm_new};
use super::scratch;
use super::slices::{self, read};
use super::tape::Tape;
use super::tensors::{as_f32, off_where_zero};

/// `x w^T + b`, then relu if `relu`. Shapes: `x: [batch, inputs]`, `w: [outputs, inputs]`, `b: [outputs]`; returns
/// `[batch, outputs]`.
///
/// # Errors
/// If the shapes do not agree, or the tensors are not `f32` on one device.
pub fn linear(tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>, relu: bool) -> Result<Tensor> {
    let (outputs, inputs) = w.dims2()?;
    apply(
        tape,
        x,
        w,
        b,
        Weights {
            inputs,
            outputs,
            relu,
            inputs_first: false,
        },
    )
}

/// As [`linear`], with `w: [inputs, outputs]` as in GPT-2's `Conv1D`: `x w + b`.
///
/// # Errors
/// As [`linear`].
pub fn linear_inputs_first(tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let (inputs, outputs) = w.dims2()?;
    apply(
        tape,
        x,
        w,
        b,
        Weights {
            inputs,
            outputs,
            relu: false,
            inputs_first: true,
        },
    )
}

fn apply(tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>, layer: Weights) -> Result<Tensor> {
    let (batch, depth) = x.dims2()?;
    if depth != layer.inputs || b.is_some_and(|b| b.dims() != [layer.outputs]) {
        let bias = b.map(Tensor::dims);
        bail!(
            "weights {:?} and bias {bias:?} do not suit input {:?}",
            w.dims(),
            x.dims()
        );
    }
    if !tape.is_native(x) {
        return composed(tape, x, w, b, layer);
    }
    let x = x.contiguous()?;
    let bias = b.map(read).transpose()?;
    let out = layer.forward(&read(&x)?, &read(w)?, bias.as_deref(), batch);
    drop(bias);
    let out = slices::tensor(out, (batch, layer.outputs))?;
    let y = layer.relu.then(|| out.clone());
    // Without a bias, `w` is passed twice, and the third gradient is `None`.
    let has_bias = b.is_some();
    Ok(
        tape.looped([&x, w, b.unwrap_or(w)], out, move |mut grad, [x, w, _], wanted| {
            if let Some(y) = y {
                let y = read(&y)?;
                grad.iter_mut().zip(y.iter()).for_each(|(g, y)| {
                    *g = if *y <= 0.0 { 0.0 } else { *g };
                });
            }
            let db = (has_bias && wanted[2]).then(|| {
                let mut db = vec![0.0; layer.outputs];
                slices::add_rows(&mut db, &grad);
                db
            });
            let dw = wanted[1].then(|| layer.weight_grad(x, &grad, batch));
            Ok([wanted[0].then(|| layer.input_grad(w, &grad, batch)), dw, db])
        }),
    )
}

/// As [`apply`], on other devices.
fn composed(tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>, layer: Weights) -> Result<Tensor> {
    let dtype = tape.operand_type(x);
    let operand = |t: &Tensor| t.detach().to_dtype(dtype);
    let (inputs, weights) = (operand(x)?, operand(w)?);
    let product = match layer.inputs_first {
        true => inputs.matmul(&weights)?,
        false => inputs.matmul(&weights.t()?)?,
    };
    let mut out = as_f32(&product)?;
    if let Some(b) = b {
        out = out.broadcast_add(&b.detach())?;
    }
    if layer.relu {
        out = out.relu()?;
    }
    // Weights of another type are converted again, so that not those of all layers are in memory at once.
    let weights = tape.wants(x).then(|| w.detach());
    let inputs = tape.wants(w).then_some(inputs);
    let (y, has_bias) = (layer.relu.then(|| out.clone()), b.is_some());
    Ok(tape.composition([x, w, b.unwrap_or(w)], out, move |grad, wanted| {
        let grad = off_where_zero(grad, y.as_ref())?;
        let db = (has_bias && wanted[2]).then(|| grad.sum(0)).transpose()?;
        let grad = grad.to_dtype(dtype)?;
        let dw = inputs.map(|inputs| match layer.inputs_first {
            true => inputs.t()?.matmul(&grad),
            false => grad.t()?.matmul(&inputs),
        });
        let dx = weights.map(|weights| match layer.inputs_first {
            true => grad.matmul(&weights.to_dtype(dtype)?.t()?),
            false => grad.matmul(&weights.to_dtype(dtype)?),
        });
        let in_f32 = |grad: Option<Result<Tensor>>| grad.map(|grad| as_f32(&grad?)).transpose();
        Ok([in_f32(dx)?, in_f32(dw)?, db])
    }))
}

#[derive(Debug, Clone, Copy)]
struct Weights {
    inputs: usize,
    outputs: usize,
    relu: bool,
    inputs_first: bool,
}

/// Fewest rows whose product is made as it is, not transposed.
const MANY: usize = 257;

impl Weights {
    /// `w^T`, `[inputs, outputs]`.
    fn view<'a>(&self, w: &'a [f32]) -> View<'a> {
        match self.inputs_first {
            true => View::new(w, self.inputs, self.outputs),
            false => View::new(w, self.outputs, self.inputs).t(),
        }
    }

    fn forward(&self, x: &[f32], w: &[f32], b: Option<&[f32]>, batch: usize) -> Vec<f32> {
        let x = View::new(x, batch, self.inputs);
        if batch >= MANY {
            let mut out = match b {
                Some(b) => b.repeat(batch),
                None => gemm_new(x, self.view(w)),
            };
            if b.is_some() {
                gemm(&mut out, x, self.view(w), true);
            }
            if self.relu {
                out.iter_mut().for_each(|y| *y = if *y <= 0.0 { 0.0 } else { *y });
            }
            return out;
        }
        let mut out = vec![0.0; batch * self.outputs];
        // The product of few rows is made transposed, `w x^T`: then these rows are rearranged for it, not the many of `w`.
        scratch::with(out.len(), |y| {
            gemm(y, self.view(w).t(), x.t(), false);
            for (row, out) in out.chunks_exact_mut(self.outputs).enumerate() {
                for (at, (y, out)) in y.chunks_exact(batch).zip(out).enumerate() {
                    let value = y[row] + b.map_or(0.0, |b| b[at]);
                    *out = if self.relu && value <= 0.0 { 0.0 } else { value };
                }
            }
        });
        out
    }

    fn weight_grad(&self, x: &[f32], grad: &[f32], batch: usize) -> Vec<f32> {
        let (x, grad) = (View::new(x, batch, self.inputs), View::new(grad, batch, self.outputs));
        match self.inputs_first {
            true => gemm_new(x.t(), grad),
            false => gemm_new(grad.t(), x),
        }
    }

    fn input_grad(&self, w: &[f32], grad: &[f32], batch: usize) -> Vec<f32> {
        gemm_new(View::new(grad, batch, self.outputs), self.view(w).t())
    }
}
