//! The output layer of a language model together with its loss.

use candle_core::{Result, Tensor};

use super::cross_entropy::{IGNORED, check_labels, counted, cross_entropy, scaled};
use super::gemm::{View, gemm};
use super::linear::linear;
use super::scratch;
use super::shape::expect;
use super::simd::{exp, largest, sum, vectorized};
use super::tape::Tape;

/// Most logits that are in memory at once, unless one row has more: 32 MiB.
const MOST_LOGITS: usize = 1 << 23;

/// [`cross_entropy`] of the logits `x w^T + b`. On a CPU the logits are never all kept: a large vocabulary makes them
/// larger than all else in a step, so each piece of rows is turned into its gradients while it is in the cache. Shapes:
/// `x: [rows, inputs]`, `w: [classes, inputs]`, `b: [classes]`, `labels: [rows]`; returns a scalar.
pub(crate) fn linear_cross_entropy(
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
    let ((rows, inputs), (classes, _)) = (x.dims2()?, w.dims2()?);
    expect("the weights of a layer", w, &[classes, inputs])?;
    b.map_or(Ok(()), |b| expect("the bias of a layer", b, &[classes]))?;
    check_labels(labels, rows, classes)?;
    let has_bias = b.is_some();
    // Without a bias, `w` is passed twice, and the third gradient is `None`.
    tape.looped(false, [x, w, b.unwrap_or(w)], (), |[x, w, b], wanted| {
        let layer = Layer {
            w,
            b: has_bias.then_some(b),
            inputs,
            classes,
        };
        let (loss, own) = layer.loss(x, labels, wanted);
        (vec![loss], |grad, _| own.map(|own| Some(scaled(own?, grad[0]))))
    })
}

#[derive(Clone, Copy)]
struct Layer<'a> {
    w: &'a [f32],
    b: Option<&'a [f32]>,
    inputs: usize,
    classes: usize,
}

impl Layer<'_> {
    /// The mean loss over the rows that count, and those of its gradients by `x`, `w` and `b` that are wanted.
    fn loss(&self, x: &[f32], labels: &[u32], wanted: [bool; 3]) -> (f32, [Option<Vec<f32>>; 3]) {
        let inputs = self.inputs;
        let classes = self.classes;
        let zeros = |wanted: bool, len: usize| wanted.then(|| vec![0.0; len]);
        let [mut own_x, mut own_w] = [zeros(wanted[0], x.len()), zeros(wanted[1], self.w.len())];
        let mut own_b = zeros(wanted[2] && self.b.is_some(), classes);
        let counted = counted(labels).max(1);
        let share = 1.0 / counted as f32;
        let at_once = (MOST_LOGITS / classes).max(1);
        let mut loss = 0.0;
        for (piece, labels) in labels.chunks(at_once).enumerate() {
            let rows = labels.len();
            let first = piece * at_once;
            let x = View::new(&x[first * inputs..][..rows * inputs], rows, inputs);
            scratch::with(rows * classes, |logits| {
                if let Some(b) = self.b {
                    logits.chunks_exact_mut(classes).for_each(|row| row.copy_from_slice(b));
                }
                let w = View::new(self.w, classes, inputs);
                gemm(logits, x, w.t(), self.b.is_some());
                for (row, &label) in logits.chunks_exact_mut(classes).zip(labels) {
                    loss += row_loss(row, label, share, own_b.as_deref_mut());
                }
                let grad = View::new(logits, rows, classes);
                if let Some(d_x) = &mut own_x {
                    gemm(&mut d_x[first * inputs..][..rows * inputs], grad, w, false);
                }
                if let Some(d_w) = &mut own_w {
                    gemm(d_w, grad.t(), x, piece > 0);
                }
            });
        }
        ((loss / counted as f64) as f32, [own_x, own_w, own_b])
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
