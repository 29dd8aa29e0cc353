//! Stochastic gradient descent in place, by loops: `v = momentum v + g + decay p`, `p -= rate v`, as `torch.optim.SGD`.

use candle_core::{Result, Tensor, Var};

use super::in_place;
use super::step_size::StepSize;

/// One step without momentum: `p -= rate (scale g + decay p)`.
pub(super) fn plain(var: &Var, grad: &Tensor, size: StepSize) -> Result<()> {
    let shrink = 1.0 - size.rate * size.decay;
    let step = size.rate * size.scale;
    in_place::each_by(var.as_tensor(), grad, move |p, g| *p = *p * shrink - step * g)
}

/// One step with momentum. `velocity` is updated: `v = momentum v + scale g + decay p`.
pub(super) fn with_momentum(var: &Var, grad: &Tensor, velocity: &Tensor, momentum: f32, size: StepSize) -> Result<()> {
    in_place::each_by_two(velocity, grad, var.as_tensor(), move |v, g, p| {
        *v = momentum * *v + size.scale * g + size.decay * p;
    })?;
    let along = StepSize {
        scale: 1.0,
        decay: 0.0,
        ..size
    };
    plain(var, velocity, along)
}
