//! Stochastic gradient descent in place: `v = momentum v + g + decay p`, `p -= rate v`, as `torch.optim.SGD`.

use candle_core::{Result, Tensor, Var};

use super::in_place;
use super::native::on_cpu;
use super::step_size::StepSize;

/// One step without momentum: `p -= rate (scale g + decay p)`.
///
/// # Errors
/// If the device fails.
pub(super) fn plain(var: &Var, grad: &Tensor, size: StepSize) -> Result<()> {
    if on_cpu(grad) {
        let (shrink, step) = (1.0 - size.rate * size.decay, size.rate * size.scale);
        return in_place::each_by(var.as_tensor(), grad, move |p, g| *p = *p * shrink - step * g);
    }
    let p = var.as_tensor().detach();
    let direction = direction(&p, grad, size)?;
    var.set(&(p - (direction * f64::from(size.rate))?)?)
}

/// One step with momentum. `velocity` is updated: `v = momentum v + scale g + decay p`.
///
/// # Errors
/// As [`plain`].
pub(super) fn with_momentum(
    var: &Var,
    grad: &Tensor,
    velocity: &mut Tensor,
    momentum: f32,
    size: StepSize,
) -> Result<()> {
    if on_cpu(grad) {
        in_place::each_by_two(velocity, grad, var.as_tensor(), move |v, g, p| {
            *v = momentum * *v + size.scale * g + size.decay * p;
        })?;
        let along = StepSize {
            scale: 1.0,
            decay: 0.0,
            ..size
        };
        return plain(var, velocity, along);
    }
    let p = var.as_tensor().detach();
    let direction = direction(&p, grad, size)?;
    *velocity = ((&*velocity * f64::from(momentum))? + direction)?;
    var.set(&(p - (&*velocity * f64::from(size.rate))?)?)
}

/// `scale g + decay p`, with as few operations as that needs: on a GPU a small tensor costs as much as a start of a kernel.
fn direction(p: &Tensor, grad: &Tensor, size: StepSize) -> Result<Tensor> {
    let mut direction = grad.clone();
    if size.scale != 1.0 {
        direction = (direction * f64::from(size.scale))?;
    }
    if size.decay != 0.0 {
        direction = (direction + (p * f64::from(size.decay))?)?;
    }
    Ok(direction)
}
