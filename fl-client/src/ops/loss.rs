//! Softmax and cross-entropy as one operation.

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Result, Shape, Tensor, bail};

use super::slices::{self, values};
use super::tape::Tape;

/// Mean of `-ln softmax(logits)[label]` over the batch, a scalar. Shapes: `logits: [batch, classes]`,
/// `labels: [batch]`.
///
/// # Errors
/// If there is not one label a row, or a label is not below `classes`.
pub fn cross_entropy(tape: &mut Tape, logits: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let (batch, classes) = logits.dims2()?;
    if batch == 0 || labels.len() != batch || labels.iter().any(|&l| l as usize >= classes) {
        bail!("{} labels do not suit logits {:?}", labels.len(), logits.dims());
    }
    if logits.device().is_cpu() {
        let op = CrossEntropy {
            labels: labels.to_vec(),
            grad: OnceLock::new(),
        };
        return tape.apply1(logits, op);
    }
    let shifted = logits.broadcast_sub(&logits.max_keepdim(1)?.detach())?;
    let log_softmax = shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(1)?.log()?)?;
    let labels = Tensor::new(labels, logits.device())?.unsqueeze(1)?;
    log_softmax.gather(&labels, 1)?.mean_all()?.neg()?.to_dtype(DType::F32)
}

struct CrossEntropy {
    labels: Vec<u32>,
    /// Gradient of the logits, kept from forward to backward.
    grad: OnceLock<Vec<f32>>,
}

impl CustomOp1 for CrossEntropy {
    fn name(&self) -> &'static str {
        "softmax-cross-entropy"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let logits = values(logits, layout)?;
        let (loss, grad) = forward(logits, &self.labels);
        if self.grad.set(grad).is_err() {
            bail!("a loss op is applied once");
        }
        Ok((CpuStorage::F32(vec![loss]), ().into()))
    }

    fn bwd(&self, logits: &Tensor, _loss: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let Some(own) = self.grad.get() else {
            bail!("backward before forward")
        };
        let scale = slices::with(grad, |grad| Ok(grad[0]))?;
        let grad: Vec<f32> = own.iter().map(|g| g * scale).collect();
        Ok(Some(Tensor::from_vec(grad, logits.shape(), logits.device())?))
    }
}

/// The mean loss and its gradient, `(softmax - one hot) / batch`. Shapes: `logits: [labels.len() * classes]`.
fn forward(logits: &[f32], labels: &[u32]) -> (f32, Vec<f32>) {
    let (classes, share) = (logits.len() / labels.len(), 1.0 / labels.len() as f32);
    let mut grad = Vec::with_capacity(logits.len());
    let mut loss = 0.0f64;
    for (row, &label) in logits.chunks_exact(classes).zip(labels) {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let first = grad.len();
        grad.extend(row.iter().map(|z| (z - top).exp()));
        let out = &mut grad[first..];
        let sum: f32 = out.iter().sum();
        loss += f64::from(sum.ln() - (row[label as usize] - top));
        out.iter_mut().for_each(|p| *p *= share / sum);
        out[label as usize] -= share;
    }
    ((loss / labels.len() as f64) as f32, grad)
}
