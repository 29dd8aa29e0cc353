//! The output layer of a language model together with its loss.

use candle_core::{Result, Tensor, bail};

use super::gemm::{View, gemm};
use super::linear::linear;
use super::loss::{IGNORED, cross_entropy};
use super::scratch;
use super::simd::{exp, largest, sum, vectorized};
use super::slices::{self, read};
use super::tape::Tape;

/// Most logits that are in memory at once, unless one row has more: 32 MiB.
const MOST_LOGITS: usize = 1 << 23;

/// [`cross_entropy`] of the logits `x w^T + b`. On a CPU the logits are never all kept: a large vocabulary makes them
/// larger than all else in a step, so each piece of rows is turned into its gradients while it is in the cache. Shapes:
/// `x: [rows, inputs]`, `w: [classes, inputs]`, `b: [classes]`, `labels: [rows]`; returns a scalar.
///
/// # Errors
/// As [`linear`] and [`cross_entropy`].
pub fn linear_cross_entropy(
    tape: &mut Tape,
    x: &Tensor,
    w: &Tensor,
    b: Option<&Tensor>,
    labels: &[u32],
) -> Result<Tensor> {
    if !tape.is_native(x) {
        let logits = linear(tape, x, w, b, false)?;
        return cross_entropy(tape, &logits, labels);
    }
    let ((rows, inputs), (classes, depth)) = (x.dims2()?, w.dims2()?);
    if depth != inputs || b.is_some_and(|b| b.dims() != [classes]) {
        let bias = b.map(Tensor::dims);
        bail!(
            "weights {:?} and bias {bias:?} do not suit input {:?}",
            w.dims(),
            x.dims()
        );
    }
    let fits = |&label: &u32| label == IGNORED || (label as usize) < classes;
    if rows == 0 || labels.len() != rows || !labels.iter().all(fits) {
        bail!("{} labels do not suit {rows} rows of {classes} classes", labels.len());
    }
    let x = x.contiguous()?;
    let wanted = Wanted {
        x: tape.wants(&x),
        w: tape.wants(w),
        b: b.is_some_and(|b| tape.wants(b)),
    };
    let bias = b.map(read).transpose()?;
    let layer = Layer {
        w: &read(w)?,
        b: bias.as_deref(),
        inputs,
        classes,
    };
    let (loss, own) = layer.loss(&read(&x)?, labels, wanted);
    drop(bias);
    let loss = slices::tensor(vec![loss], ())?;
    // Without a bias, `w` is passed twice, and the third gradient is `None`.
    Ok(tape.looped([&x, w, b.unwrap_or(w)], loss, move |grad, _, _| {
        Ok([own.x, own.w, own.b].map(|own| {
            let mut own = own?;
            if grad[0] != 1.0 {
                own.iter_mut().for_each(|value| *value *= grad[0]);
            }
            Some(own)
        }))
    }))
}

/// Which gradients are needed.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    x: bool,
    w: bool,
    b: bool,
}

/// Gradients of a mean loss.
struct Own {
    x: Option<Vec<f32>>,
    w: Option<Vec<f32>>,
    b: Option<Vec<f32>>,
}

#[derive(Clone, Copy)]
struct Layer<'a> {
    w: &'a [f32],
    b: Option<&'a [f32]>,
    inputs: usize,
    classes: usize,
}

impl Layer<'_> {
    /// The mean loss over the rows that count, and its gradients.
    fn loss(&self, x: &[f32], labels: &[u32], wanted: Wanted) -> (f32, Own) {
        let (inputs, classes) = (self.inputs, self.classes);
        let zeros = |wanted: bool, len: usize| wanted.then(|| vec![0.0; len]);
        let mut own = Own {
            x: zeros(wanted.x, x.len()),
            w: zeros(wanted.w, self.w.len()),
            b: zeros(wanted.b, classes),
        };
        let counted = labels.iter().filter(|&&label| label != IGNORED).count().max(1);
        let share = 1.0 / counted as f32;
        let at_once = (MOST_LOGITS / classes).max(1);
        let mut loss = 0.0;
        for (piece, labels) in labels.chunks(at_once).enumerate() {
            let (rows, first) = (labels.len(), piece * at_once);
            let x = View::new(&x[first * inputs..][..rows * inputs], rows, inputs);
            scratch::with(rows * classes, |logits| {
                if let Some(b) = self.b {
                    logits.chunks_exact_mut(classes).for_each(|row| row.copy_from_slice(b));
                }
                let w = View::new(self.w, classes, inputs);
                gemm(logits, x, w.t(), self.b.is_some());
                for (row, &label) in logits.chunks_exact_mut(classes).zip(labels) {
                    loss += row_loss(row, label, share, own.b.as_deref_mut());
                }
                let grad = View::new(logits, rows, classes);
                if let Some(d_x) = &mut own.x {
                    gemm(&mut d_x[first * inputs..][..rows * inputs], grad, w, false);
                }
                if let Some(d_w) = &mut own.w {
                    gemm(d_w, grad.t(), x, piece > 0);
                }
            });
        }
        ((loss / counted as f64) as f32, own)
    }
}

/// The loss of one row, whose logits become their gradient, `share (softmax - one hot)`; `d_b` is added to.
fn row_loss(row: &mut [f32], label: u32, share: f32, d_b: Option<&mut [f32]>) -> f64 {
    if label == IGNORED {
        row.fill(0.0);
        return 0.0;
    }
    let right = row[label as usize];
    vectorized(
        #[inline(always)]
        || {
            let top = largest(row);
            for z in &mut *row {
                *z = exp(*z - top);
            }
            let all = sum(row);
            let scale = share / all;
            for p in &mut *row {
                *p *= scale;
            }
            row[label as usize] -= share;
            if let Some(d_b) = d_b {
                for (d, p) in d_b.iter_mut().zip(&*row) {
                    *d += p;
                }
            }
            f64::from(all.ln() - (right - top))
        },
    )
}
