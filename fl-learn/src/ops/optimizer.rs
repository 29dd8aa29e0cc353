//! The optimizer of local steps: what all rules share (FedProx's pull, clipping, moments that outlive a round), and one slot a
//! variable with its rule.

use candle_core::{Result, Tensor, Var, bail};
use fl_proto::{OptimizerSpec, Training};

use super::adamw::Moments;
use super::muon::Hidden;
use super::native::on_cpu;
use super::step_size::StepSize;
use super::{in_place, sgd, slices};
use fl_client::OptimizerState;

#[derive(Debug)]
pub(crate) struct LocalOptimizer {
    spec: OptimizerSpec,
    momentum: f32,
    weight_decay: f32,
    clip_norm: Option<f32>,
    /// Weight mu of `mu / 2 |p - start|^2`, which is part of the loss (Li et al. 2020, eq. 2).
    proximal: f32,
    start: Vec<Tensor>,
    slots: Vec<Slot>,
    /// Steps taken, those of earlier rounds included if their moments were restored.
    steps: u64,
}

/// What is carried for one variable; its kind is the rule of the variable's steps.
#[derive(Debug)]
enum Slot {
    Plain,
    Velocity(Tensor),
    Adam(Moments),
    Hidden(Hidden),
}

impl LocalOptimizer {
    /// The optimizer of `training` for `vars`, with moments of zero. The values of `vars` are the start that the proximal term
    /// pulls to. `names`: one for each variable.
    pub(crate) fn new(training: &Training, names: &[&str], vars: &[Var]) -> Result<Self> {
        if names.len() != vars.len() {
            bail!("{} names for {} variables", names.len(), vars.len());
        }
        let start = match training.proximal > 0.0 {
            true => vars
                .iter()
                .map(|var| var.as_tensor().detach().copy())
                .collect::<Result<_>>()?,
            false => Vec::new(),
        };
        Ok(Self {
            spec: training.optimizer,
            momentum: training.momentum,
            weight_decay: training.weight_decay,
            clip_norm: training.clip_norm,
            proximal: training.proximal,
            start,
            slots: names
                .iter()
                .zip(vars)
                .map(|(name, var)| {
                    Ok(match training.optimizer {
                        OptimizerSpec::Sgd if training.momentum > 0.0 => {
                            Slot::Velocity(var.as_tensor().detach().zeros_like()?)
                        }
                        OptimizerSpec::Sgd => Slot::Plain,
                        OptimizerSpec::AdamW(_) => Slot::Adam(Moments::zeros(var)?),
                        OptimizerSpec::Muon(_) => match Hidden::of(name, names, var)? {
                            Some(hidden) => Slot::Hidden(hidden),
                            None => Slot::Adam(Moments::zeros(var)?),
                        },
                    })
                })
                .collect::<Result<_>>()?,
            steps: 0,
        })
    }

    /// Moves every variable by one step at `rate`. Shapes: one gradient per variable, in the same order and of the same shape.
    pub(crate) fn step(&mut self, vars: &[Var], grads: &[Tensor], rate: f32) -> Result<()> {
        if vars.len() != grads.len() || vars.len() != self.slots.len() {
            bail!("{} gradients for {} variables", grads.len(), vars.len());
        }
        self.steps = self.steps.saturating_add(1);
        let mut size = StepSize {
            rate,
            scale: 1.0,
            decay: self.weight_decay,
        };
        if vars.first().is_some_and(|var| !on_cpu(var)) {
            return self.step_on_gpu(vars, grads, size);
        }
        for ((grad, var), start) in grads.iter().zip(vars).zip(&self.start) {
            let mu = self.proximal;
            in_place::each_by_two(grad, var.as_tensor(), start, move |g, p, start| *g += mu * (p - start))?;
        }
        if let Some(limit) = self.clip_norm {
            size.scale = (limit / norm(grads)?.max(f32::MIN_POSITIVE)).min(1.0);
        }
        for ((slot, var), grad) in self.slots.iter_mut().zip(vars).zip(grads) {
            match (slot, self.spec) {
                (Slot::Plain, _) => sgd::plain(var, grad, size)?,
                (Slot::Velocity(velocity), _) => sgd::with_momentum(var, grad, velocity, self.momentum, size)?,
                (Slot::Adam(moments), OptimizerSpec::AdamW(adamw)) => {
                    moments.step(var, grad, adamw, self.steps, size)?
                }
                (Slot::Adam(moments), OptimizerSpec::Muon(muon)) => {
                    moments.step(var, grad, muon.adamw, self.steps, size)?;
                }
                (Slot::Hidden(hidden), OptimizerSpec::Muon(muon)) => hidden.step(var, grad, muon, size)?,
                (Slot::Adam(_) | Slot::Hidden(_), _) => bail!("a slot of another optimizer"),
            }
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> Result<OptimizerState> {
        let mut values = Vec::new();
        for tensor in self.slots.iter().flat_map(Slot::moments) {
            values.extend(tensor.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(OptimizerState {
            optimizer: self.spec.name().to_owned(),
            steps: self.steps,
            values,
        })
    }

    /// Continues from the moments of an earlier round.
    pub(crate) fn restore(&mut self, state: &OptimizerState) -> Result<()> {
        if state.optimizer != self.spec.name() {
            bail!(
                "the kept state is of optimizer `{}`, not `{}`",
                state.optimizer,
                self.spec.name()
            );
        }
        let wanted: usize = self
            .slots
            .iter()
            .flat_map(Slot::moments)
            .map(|tensor| tensor.elem_count())
            .sum();
        if state.values.len() != wanted {
            bail!("the kept state has {} moments, not {wanted}", state.values.len());
        }
        let mut rest = state.values.as_slice();
        for tensor in self.slots.iter_mut().flat_map(Slot::moments_mut) {
            let (own, after) = rest.split_at(tensor.elem_count());
            *tensor = Tensor::from_slice(own, tensor.shape(), tensor.device())?;
            rest = after;
        }
        self.steps = state.steps;
        Ok(())
    }
}

impl Slot {
    fn moments(&self) -> Vec<&Tensor> {
        match self {
            Self::Plain => vec![],
            Self::Velocity(tensor) => vec![tensor],
            Self::Adam(Moments { mean, square }) => vec![mean, square],
            Self::Hidden(hidden) => vec![&hidden.momentum],
        }
    }

    fn moments_mut(&mut self) -> Vec<&mut Tensor> {
        match self {
            Self::Plain => vec![],
            Self::Velocity(tensor) => vec![tensor],
            Self::Adam(Moments { mean, square }) => vec![mean, square],
            Self::Hidden(hidden) => vec![&mut hidden.momentum],
        }
    }
}

fn norm(grads: &[Tensor]) -> Result<f32> {
    let mut sum = 0.0f64;
    for grad in grads {
        sum += slices::with(grad, |g| Ok(slices::squares(g)))?;
    }
    Ok(sum.sqrt() as f32)
}

mod on_gpu;
#[cfg(test)]
mod tests;
