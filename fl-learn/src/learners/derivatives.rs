//! Whether a model's gradients are those of its loss, by finite differences.

use candle_core::{Result, Tensor, Var};

use crate::data::Rng;
use crate::ops::with_values;

const MOST: usize = 24;
/// Change of the loss that a step is made for, relative to the loss.
const CHANGE: f64 = 0.01;
/// Longest step, relative to the tensor's norm.
const STEP: f64 = 0.05;
/// How far slope and difference may be apart, relative to the larger of the two: relu and pools bend.
const APART: f64 = 0.1;
/// Error of a loss in f32, relative to it.
const NOISE: f64 = 2e-6;

/// The places of tensors whose slope is wrong, and how many times the right one it is. The step of a trial is along the gradient
/// that is claimed, or where it is zero along a drawn direction. `loss`: of the present values. The values are what they were
/// afterwards.
pub(super) fn wrong(
    vars: &[Var],
    grads: &[Tensor],
    mut loss: impl FnMut() -> Result<f64>,
) -> Result<Vec<(usize, f64)>> {
    let present = loss()?.abs().max(0.1);
    let mut found = Vec::new();
    let every = vars.len().div_ceil(MOST).max(1);
    for (at, (var, grad)) in vars.iter().zip(grads).enumerate().step_by(every) {
        let before = values(var.as_tensor())?;
        let mut direction = values(grad)?;
        let claimed = norm(&direction);
        if claimed > 0.0 {
            direction.iter_mut().for_each(|value| *value /= claimed as f32);
        } else {
            let mut rng = Rng::of(&[at as u64, 9]);
            let scale = 1.0 / (before.len().max(1) as f32).sqrt();
            direction
                .iter_mut()
                .for_each(|value| *value = if rng.bits() & 1 == 0 { scale } else { -scale });
        }
        let set = |step: f64| {
            let moved = before
                .iter()
                .zip(&direction)
                .map(|(value, along)| value + step as f32 * along);
            var.set(&Tensor::from_vec(
                moved.collect::<Vec<f32>>(),
                var.shape(),
                var.device(),
            )?)
        };
        let longest = STEP * (norm(&before) + 0.1);
        let mut step = (CHANGE * present / claimed.max(1e-12)).min(longest);
        let mut ratio = None;
        // A shorter step is decisive where the loss bends.
        for _ in 0..2 {
            let mut at = |step: f64| {
                set(step)?;
                loss()
            };
            let slope = (at(step)? - at(-step)?) / (2.0 * step);
            let allowed = APART * slope.abs().max(claimed) + NOISE * present / step;
            ratio = ((slope - claimed).abs() > allowed).then_some(claimed / slope);
            if ratio.is_none() {
                break;
            }
            step /= 4.0;
        }
        set(0.0)?;
        found.extend(ratio.map(|ratio| (at, ratio)));
    }
    Ok(found)
}

// By loops of our own: candle's operations would come with their code for every type of numbers.

fn values(x: &Tensor) -> Result<Vec<f32>> {
    with_values(x, <[f32]>::to_vec)
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}
