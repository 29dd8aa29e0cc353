//! A fully connected layer with bias and, if wanted, relu as one operation.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};

use super::gemm::{View, gemm};
use super::scratch;
use super::slices::{self, values};
use super::tape::Tape;

/// `x w^T + b`, then relu if `relu`. Shapes: `x: [batch, inputs]`, `w: [outputs, inputs]`, `b: [outputs]`; returns
/// `[batch, outputs]`.
///
/// # Errors
/// If the shapes do not agree, or the tensors are not `f32` on one device.
pub fn linear(tape: &mut Tape, x: &Tensor, w: &Tensor, b: &Tensor, relu: bool) -> Result<Tensor> {
    let ((batch, inputs), (outputs, depth)) = (x.dims2()?, w.dims2()?);
    if depth != inputs || b.dims() != [outputs] {
        bail!(
            "weights {:?} and bias {:?} do not suit input {:?}",
            w.dims(),
            b.dims(),
            x.dims()
        );
    }
    if x.device().is_cpu() {
        let op = Linear {
            batch,
            inputs,
            outputs,
            relu,
            input_grad: tape.leads_to(x),
        };
        return tape.apply3(x, w, b, op);
    }
    let y = x.matmul(&w.t()?)?.broadcast_add(b)?;
    if relu { y.relu() } else { Ok(y) }
}

struct Linear {
    batch: usize,
    inputs: usize,
    outputs: usize,
    relu: bool,
    /// Whether anything before this layer is trained.
    input_grad: bool,
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear-relu"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        w: &CpuStorage,
        w_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let out = self.forward(values(x, x_layout)?, values(w, w_layout)?, values(b, b_layout)?);
        Ok((CpuStorage::F32(out), (self.batch, self.outputs).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        b: &Tensor,
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (dx, dw, db) = slices::with(x, |x| {
            slices::with(w, |w| {
                slices::with(out, |out| {
                    slices::with(&grad, |grad| Ok(self.backward(x, w, out, grad)))
                })
            })
        })?;
        let dx = dx.map(|dx| Tensor::from_vec(dx, x.shape(), x.device())).transpose()?;
        let dw = Tensor::from_vec(dw, w.shape(), w.device())?;
        let db = Tensor::from_vec(db, b.shape(), b.device())?;
        Ok((dx, Some(dw), Some(db)))
    }
}

impl Linear {
    /// The product is made transposed, `w x^T`: then the few rows of `x` are rearranged for it, not the many of `w`.
    fn forward(&self, x: &[f32], w: &[f32], b: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.batch * self.outputs];
        scratch::with(out.len(), |y| {
            let (w, x) = (
                View::new(w, self.outputs, self.inputs),
                View::new(x, self.batch, self.inputs),
            );
            gemm(y, w, x.t(), false);
            for (row, out) in out.chunks_exact_mut(self.outputs).enumerate() {
                for ((y, out), b) in y.chunks_exact(self.batch).zip(out).zip(b) {
                    let value = y[row] + b;
                    *out = if self.relu && value <= 0.0 { 0.0 } else { value };
                }
            }
        });
        out
    }

    fn backward(&self, x: &[f32], w: &[f32], out: &[f32], grad: &[f32]) -> (Option<Vec<f32>>, Vec<f32>, Vec<f32>) {
        scratch::with(grad.len(), |g| {
            for ((g, out), grad) in g.iter_mut().zip(out).zip(grad) {
                *g = if self.relu && *out <= 0.0 { 0.0 } else { *grad };
            }
            let mut db = vec![0.0; self.outputs];
            for row in g.chunks_exact(self.outputs) {
                db.iter_mut().zip(row).for_each(|(db, g)| *db += g);
            }
            let g = View::new(g, self.batch, self.outputs);
            let mut dw = vec![0.0; w.len()];
            gemm(&mut dw, g.t(), View::new(x, self.batch, self.inputs), false);
            let dx = self.input_grad.then(|| {
                let mut dx = vec![0.0; x.len()];
                gemm(&mut dx, g, View::new(w, self.outputs, self.inputs), false);
                dx
            });
            (dx, dw, db)
        })
    }
}
