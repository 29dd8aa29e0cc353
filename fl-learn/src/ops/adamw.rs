//! AdamW in place (Loshchilov and Hutter 2019, algorithm 2), as `torch.optim.AdamW`:
//!
//! ```text
//! m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2        of step t, m_0 = v_0 = 0
//! p = p (1 - rate decay) - rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)
//! ```

use candle_core::{CpuStorage, InplaceOp2, InplaceOp3, Layout, Result, Tensor, Var};
use fl_proto::AdamW;

use super::native::on_cpu;
use super::slices::{values, values_mut};
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
    pub(super) fn step(&mut self, var: &Var, grad: &Tensor, adamw: AdamW, t: u64, size: StepSize) -> Result<()> {
        let t = t.min(i32::MAX as u64) as i32;
        let left = |beta: f32| 1.0 - f64::from(beta).powi(t);
        let descend = Descend {
            shrink: (1.0 - f64::from(size.rate) * f64::from(size.decay)) as f32,
            rate: (f64::from(size.rate) / left(adamw.beta1)) as f32,
            root: left(adamw.beta2).sqrt().recip() as f32,
            eps: adamw.eps,
        };
        if on_cpu(grad) {
            let (beta, scale) = (adamw.beta1, size.scale);
            self.mean.inplace_op2(grad, &Mean { beta, scale })?;
            let beta = adamw.beta2;
            self.square.inplace_op2(grad, &Square { beta, scale })?;
            return var.as_tensor().inplace_op3(&self.mean, &self.square, &descend);
        }
        let (beta1, beta2) = (f64::from(adamw.beta1), f64::from(adamw.beta2));
        let grad = (grad * f64::from(size.scale))?;
        self.mean = ((&self.mean * beta1)? + (&grad * (1.0 - beta1))?)?;
        self.square = ((&self.square * beta2)? + (grad.sqr()? * (1.0 - beta2))?)?;
        let root = ((self.square.sqrt()? * f64::from(descend.root))? + f64::from(descend.eps))?;
        let change = ((&self.mean * f64::from(descend.rate))? / root)?;
        var.set(&((var.as_tensor().detach() * f64::from(descend.shrink))? - change)?)
    }
}

/// `m = beta m + (1 - beta) scale g`.
struct Mean {
    beta: f32,
    scale: f32,
}

impl InplaceOp2 for Mean {
    fn name(&self) -> &'static str {
        "adamw-mean"
    }

    fn cpu_fwd(&self, m: &mut CpuStorage, m_at: &Layout, g: &CpuStorage, g_at: &Layout) -> Result<()> {
        let (beta, part) = (self.beta, (1.0 - self.beta) * self.scale);
        let (m, g) = (values_mut(m, m_at)?, values(g, g_at)?);
        m.iter_mut().zip(g).for_each(|(m, g)| *m = beta * *m + part * g);
        Ok(())
    }
}

/// `v = beta v + (1 - beta) (scale g)^2`.
struct Square {
    beta: f32,
    scale: f32,
}

impl InplaceOp2 for Square {
    fn name(&self) -> &'static str {
        "adamw-square"
    }

    fn cpu_fwd(&self, v: &mut CpuStorage, v_at: &Layout, g: &CpuStorage, g_at: &Layout) -> Result<()> {
        let (beta, part, scale) = (self.beta, 1.0 - self.beta, self.scale);
        let (v, g) = (values_mut(v, v_at)?, values(g, g_at)?);
        v.iter_mut().zip(g).for_each(|(v, g)| {
            let g = scale * g;
            *v = beta * *v + part * (g * g);
        });
        Ok(())
    }
}

/// `p = shrink p - rate m / (root sqrt(v) + eps)`.
struct Descend {
    shrink: f32,
    rate: f32,
    root: f32,
    eps: f32,
}

impl InplaceOp3 for Descend {
    fn name(&self) -> &'static str {
        "adamw-descend"
    }

    fn cpu_fwd(
        &self,
        p: &mut CpuStorage,
        p_at: &Layout,
        m: &CpuStorage,
        m_at: &Layout,
        v: &CpuStorage,
        v_at: &Layout,
    ) -> Result<()> {
        let Self {
            shrink,
            rate,
            root,
            eps,
        } = *self;
        let (p, m, v) = (values_mut(p, p_at)?, values(m, m_at)?, values(v, v_at)?);
        p.iter_mut()
            .zip(m)
            .zip(v)
            .for_each(|((p, m), v)| *p = shrink * *p - rate * m / (root * v.sqrt() + eps));
        Ok(())
    }
}
