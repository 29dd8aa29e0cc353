//! AdamW in place (Loshchilov and Hutter 2019, algorithm 2), as `torch.optim.AdamW`:
//!
//! ```text
//! m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2        of step t, m_0 = v_0 = 0
//! p = p (1 - rate decay) - rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
//! ```

use candle_core::{Result, Tensor, Var};
use fl_proto::AdamW;

use super::cuda::Kernel;
use super::in_place;
use super::native::on_cpu;
use super::step_size::StepSize;

/// Moments of one variable.
#[derive(Debug)]
pub(super) struct Moments {
    pub(super) mean: Tensor,
    pub(super) square: Tensor,
}

impl Moments {
    /// # Errors
    /// If the device is out of memory.
    pub(super) fn zeros(var: &Var) -> Result<Self> {
        let zeros = || var.as_tensor().detach().zeros_like();
        Ok(Self {
            mean: zeros()?,
            square: zeros()?,
        })
    }

    /// Step number `t`, from 1, of `var`.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn step(&self, var: &Var, grad: &Tensor, adamw: AdamW, t: u64, size: StepSize) -> Result<()> {
        let t = t.min(i32::MAX as u64) as i32;
        let left = |beta: f32| 1.0 - f64::from(beta).powi(t);
        let (beta1, beta2) = (adamw.beta1, adamw.beta2);
        // `p = shrink p - rate m / (root sqrt(v) + eps)`.
        let shrink = (1.0 - f64::from(size.rate) * f64::from(size.decay)) as f32;
        let rate = (f64::from(size.rate) / left(beta1)) as f32;
        let root = left(beta2).sqrt().recip() as f32;
        let (eps, scale) = (adamw.eps, size.scale);
        if on_cpu(grad) {
            let part = (1.0 - beta1) * scale;
            in_place::each_by(&self.mean, grad, move |m, g| *m = beta1 * *m + part * g)?;
            let part = 1.0 - beta2;
            in_place::each_by(&self.square, grad, move |v, g| {
                let g = scale * g;
                *v = beta2 * *v + part * (g * g);
            })?;
            return in_place::each_by_two(var.as_tensor(), &self.mean, &self.square, move |p, m, v| {
                *p = shrink * *p - rate * m / (root * v.sqrt() + eps);
            });
        }
        let kernel = Kernel::of_each("adamw", var.elem_count());
        let kernel = kernel.changes([var, &self.mean, &self.square]).reads([grad]);
        let numbers = [scale, beta1, beta2, shrink, rate, root, eps];
        let kernel = numbers.into_iter().fold(kernel, Kernel::float);
        kernel.ints(&[var.elem_count()]).launch::<0>().map(drop)
    }
}
