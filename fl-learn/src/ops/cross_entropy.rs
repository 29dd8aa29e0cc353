//! Softmax with cross-entropy.

use candle_core::{Result, Shape, Tensor, bail};

use super::cuda::{Kernel, upload};
use super::simd::{exp, largest, sum, vectorized};
use super::tape::Tape;
use super::tensors::as_f32;

/// A label that is not trained on: the padding of a short text.
pub(crate) const IGNORED: u32 = u32::MAX;

/// Mean of `-ln softmax(logits)[label]` over the rows whose label is not [`IGNORED`], a scalar; 0 if all are ignored.
/// Shapes: `logits: [batch, classes]`, `labels: [batch]`.
pub(crate) fn cross_entropy(tape: &mut Tape, logits: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let (batch, classes) = logits.dims2()?;
    check_labels(labels, batch, classes)?;
    tape.apply(
        [logits],
        (),
        |[logits], [wanted]| {
            let (loss, own) = forward(logits, labels, wanted);
            (vec![loss], move |grad, _| [Some(scaled(own, grad[0]))])
        },
        |[logits], _| {
            let share = 1.0 / counted(labels).max(1) as f32;
            let shape = logits.shape().clone();
            let labels = upload(labels.to_vec(), &Shape::from(batch), logits.device())?;
            let values = as_f32(&logits)?;
            let [losses, stats] = Kernel::of_rows("cross_entropy", batch, classes)
                .reads([&values, &labels])
                .ints(&[classes])
                .float(share)
                .fills(batch)
                .fills((batch, 2))
                .launch()?;
            let dtype = logits.dtype();
            Ok((losses.sum_all()?, move |grad: Tensor| {
                let back =
                    Kernel::of_rows("cross_entropy_back", batch, classes).reads([&values, &labels, &stats, &grad]);
                let dx = back.ints(&[classes]).float(share).fills(shape).launch_one()?;
                Ok([Some(dx.to_dtype(dtype)?)])
            }))
        },
    )
}

/// An error unless `rows` has a label each, below `classes` or [`IGNORED`].
pub(super) fn check_labels(labels: &[u32], rows: usize, classes: usize) -> Result<()> {
    if rows == 0
        || labels.len() != rows
        || !labels
            .iter()
            .all(|&label| label == IGNORED || (label as usize) < classes)
    {
        bail!("{} labels do not suit {rows} rows of {classes} classes", labels.len());
    }
    Ok(())
}

/// The gradient `own` of a loss, times the gradient `by` of the loss itself, which is 1 unless the loss is a part of another.
pub(super) fn scaled(mut own: Vec<f32>, by: f32) -> Vec<f32> {
    if by != 1.0 {
        own.iter_mut().for_each(|own| *own *= by);
    }
    own
}

pub(super) fn counted(labels: &[u32]) -> usize {
    labels.iter().filter(|label| **label != IGNORED).count()
}

/// Widest row whose exponentials are `libm`'s: models of few classes keep the bits that they have always had.
const FEW_CLASSES: usize = 256;

/// The mean loss and its gradient, `(softmax - one hot) / counted rows`, if `wanted`.
/// Shapes: `logits: [labels.len() * classes]`.
fn forward(logits: &[f32], labels: &[u32], wanted: bool) -> (f32, Vec<f32>) {
    let classes = logits.len() / labels.len();
    let counted = counted(labels).max(1);
    let share = 1.0 / counted as f32;
    let mut grad = vec![0.0; if wanted { logits.len() } else { classes }];
    let mut loss = 0.0f64;
    for (row, (logits, &label)) in logits.chunks_exact(classes).zip(labels).enumerate() {
        if label == IGNORED {
            continue;
        }
        let out = if wanted {
            &mut grad[row * classes..][..classes]
        } else {
            &mut grad[..]
        };
        let (top, sum) = exponentials(logits, out);
        loss += f64::from(sum.ln() - (logits[label as usize] - top));
        if wanted {
            out.iter_mut().for_each(|p| *p *= share / sum);
            out[label as usize] -= share;
        }
    }
    ((loss / counted as f64) as f32, grad)
}

/// `out = e^(logits - largest)`; returns the largest and the sum.
fn exponentials(logits: &[f32], out: &mut [f32]) -> (f32, f32) {
    if logits.len() <= FEW_CLASSES {
        let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        out.iter_mut().zip(logits).for_each(|(out, z)| *out = (z - top).exp());
        return (top, out.iter().sum());
    }
    vectorized(
        #[inline(always)]
        || {
            let top = largest(logits);
            for (out, z) in out.iter_mut().zip(logits) {
                *out = exp(z - top);
            }
            (top, sum(out))
        },
    )
}
