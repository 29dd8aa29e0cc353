//! Fully connected layers: bias and relu, if wanted, are part of the operation.

use candle_core::{Result, Tensor};

use super::cuda::{Kernel, Sums};
use super::gemm::{View, gemm, gemm_new};
use super::relu::relu;
use super::shape::expect;
use super::tape::Tape;
use super::{scratch, slices};

/// `x w^T + b`, then relu if `relu`. Shapes: `x: [batch, inputs]`, `w: [outputs, inputs]`, `b: [outputs]`; returns
/// `[batch, outputs]`.
pub(crate) fn linear(tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>, relu: bool) -> Result<Tensor> {
    let (outputs, inputs) = w.dims2()?;
    let layer = Weights {
        inputs,
        outputs,
        relu,
        inputs_first: false,
    };
    layer.apply(tape, x, w, b)
}

/// As [`linear`], with `w: [inputs, outputs]` as in GPT-2's `Conv1D`: `x w + b`.
pub(crate) fn linear_inputs_first(tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let (inputs, outputs) = w.dims2()?;
    let layer = Weights {
        inputs,
        outputs,
        relu: false,
        inputs_first: true,
    };
    layer.apply(tape, x, w, b)
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
    fn apply(self, tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
        let batch = x.dims2()?.0;
        let products = tape.products();
        expect("the input of a layer", x, &[batch, self.inputs])?;
        b.map_or(Ok(()), |b| expect("the bias of a layer", b, &[self.outputs]))?;
        let has_bias = b.is_some();
        // Without a bias, `w` is passed twice, and the third gradient is `None`.
        let tensors = [x, w, b.unwrap_or(w)];
        if tape.is_native(x) {
            return tape.looped(self.relu, tensors, (batch, self.outputs), |[x, w, b], wanted| {
                let out = self.forward(x, w, has_bias.then_some(b), batch);
                (out, move |grad, [x, w, _]| {
                    let db = (has_bias && wanted[2]).then(|| {
                        let mut db = vec![0.0; self.outputs];
                        slices::add_rows(&mut db, &grad);
                        db
                    });
                    let dw = wanted[1].then(|| self.weight_grad(x, &grad, batch));
                    [wanted[0].then(|| self.input_grad(w, &grad, batch)), dw, db]
                })
            });
        }
        tape.on_gpu(self.relu, tensors, |[x, w, b], wanted| {
            let inputs = products.operand(&x)?;
            let weights = products.operand(&w)?;
            let mut out = if self.inputs_first {
                products.of(&inputs, &weights)?
            } else {
                products.of(&inputs, &weights.t()?)?
            };
            if has_bias {
                Kernel::of_each("add_bias", out.elem_count())
                    .changes([&out])
                    .reads([&b])
                    .ints(&[self.outputs, 1, out.elem_count(), self.relu.into()])
                    .launch::<0>()?;
            } else if self.relu {
                out = out.relu()?;
            }
            // Weights of another type are converted again, so that not those of all layers are in memory at once.
            let inputs = wanted[1].then_some(inputs);
            let weights = wanted[0].then_some(w);
            Ok((out, move |grad: Tensor| {
                let db = (has_bias && wanted[2])
                    .then(|| Sums::of_columns(&grad).alone(&grad))
                    .transpose()?;
                let grad = products.operand(&grad)?;
                let dw = inputs.map(|inputs| {
                    if self.inputs_first {
                        products.of(&inputs.t()?, &grad)
                    } else {
                        products.of(&grad.t()?, &inputs)
                    }
                });
                let dx = weights.map(|weights| {
                    if self.inputs_first {
                        products.of(&grad, &products.operand(&weights)?.t()?)
                    } else {
                        products.of(&grad, &products.operand(&weights)?)
                    }
                });
                Ok([dx.transpose()?, dw.transpose()?, db])
            }))
        })
    }

    /// `w^T`, `[inputs, outputs]`.
    fn view<'a>(&self, w: &'a [f32]) -> View<'a> {
        if self.inputs_first {
            View::new(w, self.inputs, self.outputs)
        } else {
            View::new(w, self.outputs, self.inputs).t()
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
                out.iter_mut().for_each(|y| *y = relu(*y));
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
                    *out = if self.relu { relu(value) } else { value };
                }
            }
        });
        out
    }

    fn weight_grad(&self, x: &[f32], grad: &[f32], batch: usize) -> Vec<f32> {
        let x = View::new(x, batch, self.inputs);
        let grad = View::new(grad, batch, self.outputs);
        if self.inputs_first {
            gemm_new(x.t(), grad)
        } else {
            gemm_new(grad.t(), x)
        }
    }

    fn input_grad(&self, w: &[f32], grad: &[f32], batch: usize) -> Vec<f32> {
        gemm_new(View::new(grad, batch, self.outputs), self.view(w).t())
    }
}
