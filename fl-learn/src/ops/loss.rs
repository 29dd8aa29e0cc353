//! Losses: softmax with cross-entropy, and the mean squared error.

use candle_core::{Result, Shape, Tensor, bail};

use super::cuda::upload;
use super::native::on_cpu;
use super::simd::{exp, largest, sum, sum_of, vectorized};
use super::slices::{self, read};
use super::tape::Tape;
use super::tensors::as_f32;

/// A label that is not trained on: the padding of a short text.
pub const IGNORED: u32 = u32::MAX;

/// Mean of `-ln softmax(logits)[label]` over the rows whose label is not [`IGNORED`], a scalar; 0 if all are ignored.
/// Shapes: `logits: [batch, classes]`, `labels: [batch]`.
///
/// # Errors
/// If there is not one label a row, or a label is not below `classes`.
pub fn cross_entropy(tape: &mut Tape, logits: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let (batch, classes) = logits.dims2()?;
    let fits = |&label: &u32| label == IGNORED || (label as usize) < classes;
    if batch == 0 || labels.len() != batch || !labels.iter().all(fits) {
        bail!("{} labels do not suit logits {:?}", labels.len(), logits.dims());
    }
    if !tape.is_native(logits) {
        return composed(tape, logits, labels);
    }
    let wanted = tape.wants(logits);
    let logits = logits.contiguous()?;
    let (loss, mut own) = forward(&read(&logits)?, labels, wanted);
    let loss = slices::tensor(vec![loss], ())?;
    Ok(tape.looped([&logits], loss, move |grad, _, _| {
        if grad[0] != 1.0 {
            own.iter_mut().for_each(|value| *value *= grad[0]);
        }
        Ok([Some(own)])
    }))
}

/// Mean of the squared differences, a scalar. Shapes: `predictions: [batch, count]`, `targets: [batch * count]`.
///
/// # Errors
/// If there is not one target for each prediction.
pub fn squared_error(tape: &mut Tape, predictions: &Tensor, targets: &[f32]) -> Result<Tensor> {
    let count = predictions.elem_count();
    if count == 0 || targets.len() != count {
        bail!(
            "{} targets do not suit predictions {:?}",
            targets.len(),
            predictions.dims()
        );
    }
    if !tape.is_native(predictions) {
        let targets = upload(targets.to_vec(), predictions.shape(), predictions.device())?;
        let differences = (predictions.detach() - targets)?;
        let loss = differences.sqr()?.mean_all()?;
        return Ok(tape.composition([predictions], loss, move |grad, _| {
            let slope = (differences * (2.0 / count as f64))?;
            Ok([Some(slope.broadcast_mul(&grad)?)])
        }));
    }
    let predictions = predictions.contiguous()?;
    let values = read(&predictions)?;
    let squares = vectorized(|| sum_of(&values, targets, |p, t| (p - t) * (p - t)));
    let loss = slices::tensor(vec![squares / count as f32], ())?;
    let differences: Vec<f32> = values.iter().zip(targets).map(|(p, t)| p - t).collect();
    Ok(tape.looped([&predictions], loss, move |grad, _, _| {
        let scale = 2.0 * grad[0] / count as f32;
        Ok([Some(differences.into_iter().map(|d| d * scale).collect())])
    }))
}

/// The class with the largest logit of each row, the first of equal ones. Shapes: `logits: [batch, classes]`.
///
/// # Errors
/// If there are no logits, or the device fails.
pub(crate) fn predicted_classes(logits: &Tensor) -> Result<Vec<u32>> {
    let (batch, classes) = logits.dims2()?;
    if batch == 0 || classes == 0 {
        bail!("no class is predicted by logits {:?}", logits.dims());
    }
    if !on_cpu(logits) {
        return logits.argmax(1)?.to_vec1();
    }
    let logits = logits.contiguous()?;
    let best = |row: &[f32]| {
        let mut best = 0;
        for (at, logit) in row.iter().enumerate() {
            if *logit > row[best] {
                best = at;
            }
        }
        best as u32
    };
    slices::with(&logits, |values| Ok(values.chunks_exact(classes).map(best).collect()))
}

/// On other devices. A row whose label is ignored has the weight 0.
fn composed(tape: &mut Tape, logits: &Tensor, labels: &[u32]) -> Result<Tensor> {
    let counted = labels.iter().filter(|label| **label != IGNORED).count();
    let weight = |label: &u32| if *label == IGNORED { 0.0 } else { 1.0 / counted as f32 };
    let weights: Vec<f32> = labels.iter().map(weight).collect();
    let labels: Vec<u32> = labels
        .iter()
        .map(|&label| if label == IGNORED { 0 } else { label })
        .collect();
    let column = Shape::from((labels.len(), 1));
    let weights = upload(weights, &column, logits.device())?;
    let labels = upload(labels, &column, logits.device())?;
    let values = as_f32(&logits.detach())?;
    let shifted = values.broadcast_sub(&values.max_keepdim(1)?)?;
    let powers = shifted.exp()?;
    let sums = powers.sum_keepdim(1)?;
    let losses = (sums.log()? - shifted.gather(&labels, 1)?)?;
    let loss = (losses * &weights)?.sum_all()?;
    let dtype = logits.dtype();
    Ok(tape.composition([logits], loss, move |grad, _| {
        let weights = weights.broadcast_mul(&grad)?;
        let slope = powers.broadcast_mul(&(&weights / sums)?)?;
        let slope = slope.scatter_add(&labels, &weights.neg()?, 1)?;
        Ok([Some(slope.to_dtype(dtype)?)])
    }))
}

/// Widest row whose exponentials are `libm`'s: models of few classes keep the bits that they have always had.
const FEW_CLASSES: usize = 256;

/// The mean loss and its gradient, `(softmax - one hot) / counted rows`, if `wanted`.
/// Shapes: `logits: [labels.len() * classes]`.
fn forward(logits: &[f32], labels: &[u32], wanted: bool) -> (f32, Vec<f32>) {
    let classes = logits.len() / labels.len();
    let counted = labels.iter().filter(|&&label| label != IGNORED).count().max(1);
    let share = 1.0 / counted as f32;
    let mut grad = vec![0.0; if wanted { logits.len() } else { classes }];
    let mut loss = 0.0f64;
    for (row, (logits, &label)) in logits.chunks_exact(classes).zip(labels).enumerate() {
        if label == IGNORED {
            continue;
        }
        let out = match wanted {
            true => &mut grad[row * classes..][..classes],
            false => &mut grad[..],
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

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    #[test]
    fn predicted_classes_are_candles() {
        let rows = [
            [0.5f32, -1.0, 3.0],
            [7.0, 7.0, -7.0],
            [f32::NEG_INFINITY; 3],
            [f32::NAN, 1.0, 2.0],
            [1.0, f32::NAN, 2.0],
        ];
        let logits = Tensor::new(&rows, &Device::Cpu).unwrap();
        assert_eq!(predicted_classes(&logits).unwrap(), [2, 0, 0, 0, 2]);
        assert_eq!(
            predicted_classes(&logits).unwrap(),
            logits.argmax(1).unwrap().to_vec1::<u32>().unwrap()
        );
        let columns = logits.t().unwrap();
        assert_eq!(
            predicted_classes(&columns).unwrap(),
            columns.argmax(1).unwrap().to_vec1::<u32>().unwrap()
        );
        assert!(predicted_classes(&Tensor::zeros((3, 0), DType::F32, &Device::Cpu).unwrap()).is_err());
    }
}
