//! Stochastic gradient descent in place: momentum, weight decay, clipping and FedProx's pull towards the start.

use candle_core::{CpuStorage, InplaceOp2, InplaceOp3, Layout, Result, Tensor, Var};

use super::slices::{self, values, values_mut};

/// The optimiser of one round, with what it carries from step to step.
#[derive(Debug)]
pub struct Sgd {
    /// Step size.
    pub learning_rate: f32,
    /// Share of the last direction that is kept, 0 to below 1: `v = momentum v + g`, `p -= learning_rate v`.
    pub momentum: f32,
    /// Times the parameter is added to its gradient, after clipping.
    pub weight_decay: f32,
    /// Largest L2 norm of all gradients together.
    pub clip_norm: Option<f32>,
    /// Weight mu of `mu / 2 |p - start|^2`, which is part of the loss (Li et al. 2020, eq. 2).
    pub proximal: f32,
    start: Vec<Tensor>,
    velocity: Vec<Tensor>,
}

impl Sgd {
    /// Plain descent of `vars`, which are also the start that the proximal term pulls to.
    ///
    /// # Errors
    /// If the device has no memory for a copy of the parameters.
    pub fn new(vars: &[Var], learning_rate: f32, momentum: f32, proximal: f32) -> Result<Self> {
        let copies = |wanted: bool, copy: &dyn Fn(&Var) -> Result<Tensor>| {
            if wanted {
                vars.iter().map(copy).collect::<Result<Vec<_>>>()
            } else {
                Ok(Vec::new())
            }
        };
        let start = copies(proximal > 0.0, &|var| var.as_tensor().detach().copy())?;
        let velocity = copies(momentum > 0.0, &|var| var.as_tensor().detach().zeros_like())?;
        Ok(Self {
            learning_rate,
            momentum,
            weight_decay: 0.0,
            clip_norm: None,
            proximal,
            start,
            velocity,
        })
    }

    /// Moves every variable by one step. Shapes: one gradient per variable, in the same order and of the same shape.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If there is not one gradient a variable.
    pub fn step(&mut self, vars: &[Var], grads: Vec<Tensor>) -> Result<()> {
        assert_eq!(vars.len(), grads.len(), "one gradient a variable");
        let mut all = Vec::with_capacity(vars.len());
        for (i, (var, grad)) in vars.iter().zip(grads).enumerate() {
            all.push(match self.start.get(i) {
                Some(start) => pull(grad, var, start, self.proximal)?,
                None => grad,
            });
        }
        let scale = match self.clip_norm {
            Some(limit) => (limit / norm(&all)?.max(f32::MIN_POSITIVE)).min(1.0),
            None => 1.0,
        };
        for (i, (var, grad)) in vars.iter().zip(&all).enumerate() {
            let rule = Rule {
                step: self.learning_rate,
                scale,
                decay: self.weight_decay,
                momentum: self.momentum,
            };
            match self.velocity.get_mut(i) {
                Some(velocity) => rule.with_momentum(var, grad, velocity)?,
                None => rule.plain(var, grad)?,
            }
        }
        Ok(())
    }
}

/// `grad + mu (var - start)`.
fn pull(grad: Tensor, var: &Var, start: &Tensor, mu: f32) -> Result<Tensor> {
    if grad.device().is_cpu() {
        grad.inplace_op3(&var.as_tensor().detach(), start, &Pull(mu))?;
        return Ok(grad);
    }
    grad + ((var.as_tensor().detach() - start)? * f64::from(mu))?
}

/// L2 norm of all gradients together, summed in their order.
fn norm(grads: &[Tensor]) -> Result<f32> {
    let mut sum = 0.0f64;
    for grad in grads {
        sum += match grad.device().is_cpu() {
            true => slices::with(grad, |g| Ok(squares(g)))?,
            false => f64::from(grad.sqr()?.sum_all()?.to_scalar::<f32>()?),
        };
    }
    Ok(sum.sqrt() as f32)
}

/// Sum of squares in eight fixed lanes.
fn squares(values: &[f32]) -> f64 {
    let (chunks, rest) = values.as_chunks::<8>();
    let mut lanes = [0.0f64; 8];
    for chunk in chunks {
        lanes
            .iter_mut()
            .zip(chunk)
            .for_each(|(lane, v)| *lane += f64::from(*v) * f64::from(*v));
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>()
}

/// One step's numbers.
#[derive(Debug, Clone, Copy)]
struct Rule {
    step: f32,
    scale: f32,
    decay: f32,
    momentum: f32,
}

impl Rule {
    fn plain(self, var: &Var, grad: &Tensor) -> Result<()> {
        if grad.device().is_cpu() {
            return var.as_tensor().inplace_op2(grad, &Descend(self));
        }
        let p = var.as_tensor().detach();
        let direction = ((grad * f64::from(self.scale))? + (&p * f64::from(self.decay))?)?;
        var.set(&(p - (direction * f64::from(self.step))?)?)
    }

    fn with_momentum(self, var: &Var, grad: &Tensor, velocity: &mut Tensor) -> Result<()> {
        if grad.device().is_cpu() {
            velocity.inplace_op3(grad, &var.as_tensor().detach(), &Accelerate(self))?;
            let along = Self {
                scale: 1.0,
                decay: 0.0,
                ..self
            };
            return var.as_tensor().inplace_op2(velocity, &Descend(along));
        }
        let p = var.as_tensor().detach();
        let direction = ((grad * f64::from(self.scale))? + (&p * f64::from(self.decay))?)?;
        *velocity = ((&*velocity * f64::from(self.momentum))? + direction)?;
        var.set(&(p - (&*velocity * f64::from(self.step))?)?)
    }
}

/// `p -= step (scale g + decay p)`.
struct Descend(Rule);

impl InplaceOp2 for Descend {
    fn name(&self) -> &'static str {
        "sgd-descend"
    }

    fn cpu_fwd(&self, p: &mut CpuStorage, p_at: &Layout, g: &CpuStorage, g_at: &Layout) -> Result<()> {
        let (shrink, step) = (1.0 - self.0.step * self.0.decay, self.0.step * self.0.scale);
        let (p, g) = (values_mut(p, p_at)?, values(g, g_at)?);
        p.iter_mut().zip(g).for_each(|(p, g)| *p = *p * shrink - step * g);
        Ok(())
    }
}

/// `v = momentum v + scale g + decay p`.
struct Accelerate(Rule);

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
        let Rule {
            scale, decay, momentum, ..
        } = self.0;
        let (v, g, p) = (values_mut(v, v_at)?, values(g, g_at)?, values(p, p_at)?);
        v.iter_mut()
            .zip(g)
            .zip(p)
            .for_each(|((v, g), p)| *v = momentum * *v + scale * g + decay * p);
        Ok(())
    }
}

/// `g += mu (p - start)`.
struct Pull(f32);

impl InplaceOp3 for Pull {
    fn name(&self) -> &'static str {
        "fedprox-pull"
    }

    fn cpu_fwd(
        &self,
        g: &mut CpuStorage,
        g_at: &Layout,
        p: &CpuStorage,
        p_at: &Layout,
        start: &CpuStorage,
        start_at: &Layout,
    ) -> Result<()> {
        let (g, p, start) = (values_mut(g, g_at)?, values(p, p_at)?, values(start, start_at)?);
        g.iter_mut()
            .zip(p)
            .zip(start)
            .for_each(|((g, p), start)| *g += self.0 * (p - start));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn var(values: &[f32]) -> Var {
        Var::from_tensor(&Tensor::new(values, &Device::Cpu).unwrap()).unwrap()
    }

    fn step(sgd: &mut Sgd, vars: &[Var], grads: &[&[f32]]) {
        let grads = grads
            .iter()
            .map(|grad| Tensor::new(*grad, &Device::Cpu).unwrap())
            .collect();
        sgd.step(vars, grads).unwrap();
    }

    fn assert_near(var: &Var, want: &[f32]) {
        let have = var.to_vec1::<f32>().unwrap();
        assert!(
            have.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6),
            "{have:?}, expected {want:?}"
        );
    }

    /// The expected numbers are those of PyTorch:
    /// `p = torch.tensor([1., -2.], requires_grad=True); o = torch.optim.SGD([p], lr=.1, momentum=.9, weight_decay=.01)`,
    /// then twice `p.grad = torch.tensor([.5, 1.]); o.step()`.
    #[test]
    fn momentum_and_weight_decay_are_pytorchs() {
        let vars = [var(&[1.0, -2.0])];
        let mut sgd = Sgd::new(&vars, 0.1, 0.9, 0.0).unwrap();
        sgd.weight_decay = 0.01;
        step(&mut sgd, &vars, &[&[0.5, 1.0]]);
        assert_near(&vars[0], &[0.949, -2.098]);
        step(&mut sgd, &vars, &[&[0.5, 1.0]]);
        assert_near(&vars[0], &[0.852151, -2.284102]);
    }

    #[test]
    fn clipping_bounds_the_norm_over_all_tensors() {
        let vars = [var(&[0.0]), var(&[0.0, 0.0])];
        let mut sgd = Sgd::new(&vars, 1.0, 0.0, 0.0).unwrap();
        sgd.clip_norm = Some(1.0);
        step(&mut sgd, &vars, &[&[3.0], &[0.0, 4.0]]);
        assert_near(&vars[0], &[-0.6]);
        assert_near(&vars[1], &[0.0, -0.8]);
        step(&mut sgd, &vars, &[&[0.3], &[0.0, 0.4]]);
        assert_near(&vars[0], &[-0.9]);
    }

    #[test]
    fn the_proximal_term_pulls_back_to_the_start() {
        let vars = [var(&[1.0])];
        let mut sgd = Sgd::new(&vars, 0.5, 0.0, 0.4).unwrap();
        step(&mut sgd, &vars, &[&[2.0]]);
        assert_near(&vars[0], &[0.0]);
        step(&mut sgd, &vars, &[&[0.0]]);
        assert_near(&vars[0], &[0.2]);
    }
}
