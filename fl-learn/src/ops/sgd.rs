//! Stochastic gradient descent in place: `v = momentum v + g + decay p`, `p -= rate v`, as `torch.optim.SGD`.

use candle_core::{Result, Tensor, Var};

use super::cuda::Kernel;
use super::in_place;
use super::native::on_cpu;
use super::step_size::StepSize;

/// One step without momentum: `p -= rate (scale g + decay p)`.
///
/// # Errors
/// If the device fails.
pub(super) fn plain(var: &Var, grad: &Tensor, size: StepSize) -> Result<()> {
    let (shrink, step) = (1.0 - size.rate * size.decay, size.rate * size.scale);
    if on_cpu(grad) {
        return in_place::each_by(var.as_tensor(), grad, move |p, g| *p = *p * shrink - step * g);
    }
    let kernel = Kernel::of_each("sgd", var.elem_count()).changes([var]).reads([grad]);
    let kernel = kernel.float(shrink).float(step).ints(&[var.elem_count()]);
    kernel.launch::<0>().map(drop)
}

/// One step with momentum. `velocity` is updated: `v = momentum v + scale g + decay p`.
///
/// # Errors
/// As [`plain`].
pub(super) fn with_momentum(var: &Var, grad: &Tensor, velocity: &Tensor, momentum: f32, size: StepSize) -> Result<()> {
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
    let kernel = Kernel::of_each("sgd_with_momentum", var.elem_count());
    let kernel = kernel.changes([var, velocity]).reads([grad]);
    let kernel = kernel
        .float(momentum)
        .float(size.scale)
        .float(size.decay)
        .float(size.rate);
    kernel.ints(&[var.elem_count()]).launch::<0>().map(drop)
}
