//! AdamW in place (Loshchilov and Hutter 2019, algorithm 2), as `torch.optim.AdamW`:
//!
//! ```text
//! m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2        of step t, m_0 = v_0 = 0
//! p = p (1 - rate decay) - rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
//! ```

use candle_core::{Result, Tensor, Var};
use fl_proto::AdamW;

use super::in_place;
use super::step_size::StepSize;

#[derive(Debug)]
pub(super) struct Moments {
    pub(super) mean: Tensor,
    pub(super) square: Tensor,
}

impl Moments {
    pub(super) fn zeros(var: &Var) -> Result<Self> {
        Ok(Self {
            mean: var.as_tensor().detach().zeros_like()?,
            square: var.as_tensor().detach().zeros_like()?,
        })
    }

    /// Step number `t`, from 1, of `var`, by loops.
    pub(super) fn step(&self, var: &Var, grad: &Tensor, adamw: AdamW, t: u64, size: StepSize) -> Result<()> {
        let AdamW { beta1, beta2, eps } = adamw;
        let [shrink, rate, root] = factors(adamw, t, size);
        let scale = size.scale;
        let part = (1.0 - beta1) * scale;
        in_place::each_by(&self.mean, grad, move |m, g| *m = beta1 * *m + part * g)?;
        let part = 1.0 - beta2;
        in_place::each_by(&self.square, grad, move |v, g| {
            let g = scale * g;
            *v = beta2 * *v + part * (g * g);
        })?;
        in_place::each_by_two(var.as_tensor(), &self.mean, &self.square, move |p, m, v| {
            *p = shrink * *p - rate * m / (root * v.sqrt() + eps);
        })
    }
}

/// `shrink`, `rate` and `root` of `p = shrink p - rate m / (root sqrt(v) + eps)`, which is step number `t`, from 1.
pub(super) fn factors(adamw: AdamW, t: u64, size: StepSize) -> [f32; 3] {
    let t = t.min(i32::MAX as u64) as i32;
    let [left1, left2] = [adamw.beta1, adamw.beta2].map(|beta| 1.0 - f64::from(beta).powi(t));
    let shrink = 1.0 - f64::from(size.rate) * f64::from(size.decay);
    let rate = f64::from(size.rate) / left1;
    let root = left2.sqrt().recip();
    [shrink as f32, rate as f32, root as f32]
}
