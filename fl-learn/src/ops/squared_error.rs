//! The mean squared error.

use candle_core::{Result, Tensor, bail};

use super::cuda::upload;
use super::simd::{sum_of, vectorized};
use super::tape::Tape;

/// Mean of the squared differences, a scalar. Shapes: `predictions: [batch, count]`, `targets: [batch * count]`.
pub(crate) fn squared_error(tape: &mut Tape, predictions: &Tensor, targets: &[f32]) -> Result<Tensor> {
    let count = predictions.elem_count();
    if count == 0 || targets.len() != count {
        let shape = predictions.dims();
        bail!("{} targets do not suit predictions {shape:?}", targets.len());
    }
    tape.apply(
        [predictions],
        (),
        |[predictions], _| {
            let squares = vectorized(|| sum_of(predictions, targets, |p, t| (p - t) * (p - t)));
            let differences: Vec<f32> = predictions.iter().zip(targets).map(|(p, t)| p - t).collect();
            (vec![squares / count as f32], move |grad, _| {
                let scale = 2.0 * grad[0] / count as f32;
                [Some(differences.into_iter().map(|d| d * scale).collect())]
            })
        },
        |[predictions], _| {
            let targets = upload(targets.to_vec(), predictions.shape(), predictions.device())?;
            let differences = (predictions - targets)?;
            Ok((differences.sqr()?.mean_all()?, move |grad| {
                let slope = (differences * (2.0 / count as f64))?;
                Ok([Some(slope.broadcast_mul(&grad)?)])
            }))
        },
    )
}
