//! Steps on a GPU: one launch moves all variables of a rule, or [`Kernel::MOST_VARIABLES`] of them, and nothing is waited for.

use candle_core::{Result, Tensor, Var};
use fl_proto::OptimizerSpec;

use super::{LocalOptimizer, Slot};
use crate::ops::adamw::{self, Moments};
use crate::ops::cuda::{Kernel, Variable};
use crate::ops::step_size::StepSize;

impl LocalOptimizer {
    /// The step of [`LocalOptimizer::step`]; `size` has no factor of clipping yet.
    pub(super) fn step_on_gpu(&mut self, vars: &[Var], grads: &[Tensor], size: StepSize) -> Result<()> {
        let variables: Vec<Variable<'_>> = (vars.iter().zip(grads).zip(&self.slots).enumerate())
            .map(|(at, ((var, grad), slot))| Variable {
                value: var,
                grad,
                start: self.start.get(at),
                moments: slot.on_gpu(),
            })
            .collect();
        let factor = match self.clip_norm {
            Some(limit) => Some(clip_factor(&variables, self.proximal, limit)?),
            None => None,
        };
        let in_tables: Vec<Variable<'_>> = (variables.iter().zip(&self.slots))
            .filter(|(_, slot)| !matches!(slot, Slot::Hidden(_)))
            .map(|(variable, _)| *variable)
            .collect();
        for variables in in_tables.chunks(Kernel::MOST_VARIABLES) {
            let (name, numbers) = self.rule(size);
            let kernel = Kernel::of_variables(name, variables).reads_some(factor.as_ref());
            let kernel = numbers.into_iter().fold(kernel.float(self.proximal), Kernel::float);
            kernel.launch::<0>()?;
        }
        let OptimizerSpec::Muon(muon) = self.spec else {
            return Ok(());
        };
        for (at, (var, grad)) in vars.iter().zip(grads).enumerate() {
            let Slot::Hidden(hidden) = &mut self.slots[at] else {
                continue;
            };
            let mut grad = grad.clone();
            if let Some(start) = self.start.get(at) {
                grad = (grad + ((var.as_tensor().detach() - start)? * f64::from(self.proximal))?)?;
            }
            if let Some(factor) = &factor {
                grad = grad.broadcast_mul(factor)?;
            }
            hidden.step_on_gpu(var, &grad, muon, size)?;
        }
        Ok(())
    }

    /// The kernel of all variables but Muon's hidden matrices, and its numbers after the factor of the gradients and `mu`.
    fn rule(&self, size: StepSize) -> (&'static str, Vec<f32>) {
        let StepSize { rate, decay, .. } = size;
        let adamw = match self.spec {
            OptimizerSpec::Sgd if self.momentum > 0.0 => {
                return ("sgd_with_momentum", vec![self.momentum, decay, rate]);
            }
            OptimizerSpec::Sgd => return ("sgd", vec![1.0 - rate * decay, rate]),
            OptimizerSpec::AdamW(adamw) => adamw,
            OptimizerSpec::Muon(muon) => muon.adamw,
        };
        let [shrink, rate, root] = adamw::factors(adamw, self.steps, size);
        ("adamw", vec![adamw.beta1, adamw.beta2, adamw.eps, shrink, rate, root])
    }
}

impl Slot {
    fn on_gpu(&self) -> [Option<&Tensor>; 2] {
        match self {
            Self::Plain | Self::Hidden(_) => [None, None],
            Self::Velocity(velocity) => [Some(velocity), None],
            Self::Adam(Moments { mean, square }) => [Some(mean), Some(square)],
        }
    }
}

/// What gradients are multiplied by, so that their norm over all variables is at most `limit`. Shapes: returns `[1]`.
fn clip_factor(variables: &[Variable<'_>], mu: f32, limit: f32) -> Result<Tensor> {
    let mut sums = Vec::new();
    for variables in variables.chunks(Kernel::MOST_VARIABLES) {
        let kernel = Kernel::of_variables("gradient_squares", variables).float(mu);
        let blocks = kernel.blocks();
        sums.push(kernel.fills(blocks).launch_one()?);
    }
    let sums = Tensor::cat(&sums, 0)?;
    let count = sums.elem_count();
    let kernel = Kernel::of_rows("clip_factor", 1, count).reads([&sums]);
    kernel.ints(&[count]).float(limit).fills(1).launch_one()
}
