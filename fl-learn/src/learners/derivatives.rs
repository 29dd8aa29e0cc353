//! Whether a model's gradients are those of its loss, by finite differences.

use candle_core::{Result, Tensor, Var};

use crate::data::Rng;

/// Tensors that are tried, at most.
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
///
/// # Errors
/// As `loss`.
pub(super) fn wrong(
    vars: &[Var],
    grads: &[Tensor],
    mut loss: impl FnMut() -> Result<f64>,
) -> Result<Vec<(usize, f64)>> {
    let present = loss()?.abs().max(0.1);
    let mut found = Vec::new();
    let every = vars.len().div_ceil(MOST).max(1);
    for (at, (var, grad)) in vars.iter().zip(grads).enumerate().step_by(every) {
        let before = var.as_detached_tensor().copy()?;
        let claimed = norm(grad)?;
        let direction = match claimed > 0.0 {
            true => grad.affine(1.0 / claimed, 0.0)?,
            false => {
                let mut rng = Rng::of(&[at as u64, 9]);
                let scale = 1.0 / (var.elem_count().max(1) as f64).sqrt();
                let signs = (0..var.elem_count()).map(|_| if rng.bits() & 1 == 0 { scale } else { -scale });
                let signs: Vec<f32> = signs.map(|sign| sign as f32).collect();
                Tensor::from_vec(signs, var.shape(), var.device())?
            }
        };
        let longest = STEP * (norm(&before)? + 0.1);
        let mut step = (CHANGE * present / claimed.max(1e-12)).min(longest);
        let mut ratio = None;
        // A shorter step is decisive where the loss bends.
        for _ in 0..2 {
            let mut at = |step: f64| {
                var.set(&(&before + direction.affine(step, 0.0)?)?)?;
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
        var.set(&before)?;
        found.extend(ratio.map(|ratio| (at, ratio)));
    }
    Ok(found)
}

fn norm(x: &Tensor) -> Result<f64> {
    Ok(f64::from(x.sqr()?.sum_all()?.to_scalar::<f32>()?).sqrt())
}
