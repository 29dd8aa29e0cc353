//! The local steps of one round: order of the examples, micro-batches, learning rate, optimizer.

use anyhow::{bail, ensure};
use candle_core::{Tensor, Var};
use fl_proto::{Length, StatePolicy, StepAt, Training};

use super::out_of_memory::Pieces;
use crate::data::{Examples, Rng};
use crate::ops::{LocalOptimizer, SquaredGradients, add_weighted, weighted};
use fl_client::{Fit, FitPlan};

/// The loss of some examples and its slope.
#[derive(Debug, Default)]
pub(super) struct Gradients {
    /// Mean over the targets.
    pub(super) loss: f64,
    /// Number of targets: examples, or tokens of a text.
    pub(super) targets: usize,
    /// Gradient of the loss with respect to each variable.
    pub(super) grads: Vec<Tensor>,
}

/// Trains `vars` as `plan` says. `names`: one for each of `vars`. `gradients` takes the positions of some examples and a
/// seed. A call that fails must change nothing: if the device is out of memory, the piece is halved and computed again,
/// with the seed that it has with this `micro_batch`.
pub(super) fn train(
    plan: &FitPlan,
    names: &[&str],
    vars: &[Var],
    examples: &Examples,
    mut gradients: impl FnMut(&[u32], u64) -> anyhow::Result<Gradients>,
) -> anyhow::Result<Fit> {
    let training = &plan.training;
    let batch = (training.batch_size as usize).clamp(1, examples.len().max(1));
    let most = training.micro_batch.map_or(batch, |micro| micro as usize);
    let mut pieces = Pieces::new(most, "training");
    let per_epoch = examples.len().div_ceil(batch).max(1) as u64;
    let steps = steps(training, per_epoch);
    let mut optimizer = LocalOptimizer::new(training, names, vars)?;
    let keeps = training.state == StatePolicy::Kept;
    if let Some(kept) = plan.kept.as_ref().filter(|_| keeps) {
        optimizer.restore(kept)?;
    }
    let mut squares = plan
        .squared_gradients
        .then(|| SquaredGradients::zeros(vars))
        .transpose()?;

    let mut order = Vec::new();
    let mut loss = 0.0;
    let mut seen = 0u64;
    plan.progress.set(0, steps);
    for step in 0..steps {
        if plan.progress.stopped() {
            bail!("training was stopped after {step} of {steps} steps");
        }
        if step % per_epoch == 0 {
            order = examples.shuffled(Rng::of(&[plan.seed, step / per_epoch]).bits());
        }
        let first = (step % per_epoch) as usize * batch;
        let positions = &order[first..examples.len().min(first + batch)];
        let Gradients { loss: own, grads, .. } = accumulated(positions, &mut pieces, |piece, positions| {
            gradients(positions, Rng::of(&[plan.seed, step, 1 + piece]).bits())
        })?;
        if !own.is_finite() && step == 0 {
            bail!(
                "the loss is {own} before the first step: an example, or a weight that training began with, is not finite or too large"
            );
        }
        ensure!(
            own.is_finite(),
            "the loss became {own} in step {step}; try a lower learning rate or a clip norm"
        );
        if let Some(squares) = &mut squares {
            squares.add(&grads)?;
        }
        let at = StepAt {
            round: plan.round,
            rounds: plan.rounds,
            step,
            steps,
        };
        optimizer.step(vars, &grads, training.learning_rate_at(at))?;
        loss += own * positions.len() as f64;
        seen += positions.len() as u64;
        plan.progress.set(step + 1, steps);
    }
    let mut fit = Fit::new(examples.len() as u64, loss / seen.max(1) as f64);
    fit.squared_gradients = squares.map(|squares| squares.means()).transpose()?;
    // The optimizer writes to the variables of the model: a step that rounding swallows is one.
    fit.unchanged_ok = Some(true);
    fit.kept = keeps.then(|| optimizer.state()).transpose()?;
    Ok(fit)
}

/// As [`Gradients`] of all `positions`, computed in `pieces`. The first argument of `gradients` is the number of the
/// piece; a piece that is computed again keeps its number.
fn accumulated(
    positions: &[u32],
    pieces: &mut Pieces,
    mut gradients: impl FnMut(u64, &[u32]) -> anyhow::Result<Gradients>,
) -> anyhow::Result<Gradients> {
    let (first, mut rest) = pieces.first(positions, |piece| gradients(0, piece))?;
    if rest.is_empty() {
        return Ok(first);
    }
    let weight = first.targets as f32;
    let mut all = Gradients {
        loss: first.loss * first.targets as f64,
        targets: first.targets,
        grads: (first.grads.into_iter().map(|grad| weighted(grad, weight))).collect::<Result<_, _>>()?,
    };
    for number in 1.. {
        let (piece, after) = pieces.first(rest, |piece| gradients(number, piece))?;
        let weight = piece.targets as f32;
        all.loss += piece.loss * piece.targets as f64;
        all.targets += piece.targets;
        let both = all.grads.into_iter().zip(&piece.grads);
        all.grads = both
            .map(|(sum, grad)| add_weighted(sum, grad, weight))
            .collect::<Result<_, _>>()?;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    let targets = all.targets.max(1);
    all.loss /= targets as f64;
    let sums = all.grads.into_iter();
    all.grads = sums
        .map(|sum| weighted(sum, (1.0 / targets as f64) as f32))
        .collect::<Result<_, _>>()?;
    Ok(all)
}

fn steps(training: &Training, per_epoch: u64) -> u64 {
    match training.length {
        Length::Epochs(epochs) => u64::from(epochs) * per_epoch,
        Length::Steps(steps) => u64::from(steps),
    }
}

#[cfg(test)]
mod tests;
