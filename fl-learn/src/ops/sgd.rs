//! Stochastic gradient descent in place: `v = momentum v + g + decay p`, `p -= rate v`, as `torch.optim.SGD`.

use candle_core::{CpuStorage, InplaceOp2, InplaceOp3, Layout, Result, Tensor, Var};

use super::native::on_cpu;
use super::slices::{values, values_mut};
use super::step_size::StepSize;

/// One step without momentum.
///
/// # Errors
/// If the device fails.
pub(super) fn plain(var: &Var, grad: &Tensor, size: StepSize) -> Result<()> {
    if on_cpu(grad) {
        return var.as_tensor().inplace_op2(grad, &Descend(size));
    }
    let p = var.as_tensor().detach();
    let direction = direction(&p, grad, size)?;
    var.set(&(p - (direction * f64::from(size.rate))?)?)
}

/// One step with momentum. `velocity` is updated.
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
        velocity.inplace_op3(grad, &var.as_tensor().detach(), &Accelerate { size, momentum })?;
        let along = StepSize {
            scale: 1.0,
            decay: 0.0,
            ..size
        };
        return var.as_tensor().inplace_op2(velocity, &Descend(along));
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

/// `p -= rate (scale g + decay p)`.
struct Descend(StepSize);

impl InplaceOp2 for Descend {
    fn name(&self) -> &'static str {
        "sgd-descend"
    }

    fn cpu_fwd(&self, p: &mut CpuStorage, p_at: &Layout, g: &CpuStorage, g_at: &Layout) -> Result<()> {
        let (shrink, step) = (1.0 - self.0.rate * self.0.decay, self.0.rate * self.0.scale);
        let (p, g) = (values_mut(p, p_at)?, values(g, g_at)?);
        p.iter_mut().zip(g).for_each(|(p, g)| *p = *p * shrink - step * g);
        Ok(())
    }
}

/// `v = momentum v + scale g + decay p`.
struct Accelerate {
    size: StepSize,
    momentum: f32,
}

impl InplaceOp3 for Accelerate {
    fn name(&self) -> &'static str {
        "sgd-accelerate"
    }

    fn cpu_fwd(
        &self,
        v: &mut CpuStorage,
        v_at: &Layout,
        g: &CpuStorage,
        g_at: &Layout,
        p: &CpuStorage,
        p_at: &Layout,
    ) -> Result<()> {
        let (StepSize { scale, decay, .. }, momentum) = (self.size, self.momentum);
        let (v, g, p) = (values_mut(v, v_at)?, values(g, g_at)?, values(p, p_at)?);
        v.iter_mut()
            .zip(g)
            .zip(p)
            .for_each(|((v, g), p)| *v = momentum * *v + scale * g + decay * p);
        Ok(())
    }
}
