//! A learner that takes no time: it returns a delta made in advance. Measures everything except training.

use std::sync::Arc;

use anyhow::{bail, ensure};
use fl_client::{Evaluation, Fit, FitPlan, Learner};
use fl_compress::Layout;

use crate::dice::Dice;

/// Its update is the same heavy-tailed delta in every round, shifted by one place each time, so that no two rounds are equal. It
/// has no weights.
#[derive(Debug)]
pub struct Ready {
    layout: Arc<Layout>,
    delta: Arc<[f32]>,
    /// Place of `delta` that is the update of the first value.
    from: usize,
}

impl Ready {
    /// A learner for a model of `values` values whose delta derives from `seed`.
    ///
    /// # Errors
    /// If no layout can have so many values.
    pub fn new(values: usize, seed: u64) -> anyhow::Result<Self> {
        Self::shifted(delta(values, seed), 0)
    }

    /// As [`Ready::new`], with a delta that learners share; each begins at another place.
    ///
    /// # Errors
    /// If no layout can have so many values.
    pub fn shifted(delta: Arc<[f32]>, from: usize) -> anyhow::Result<Self> {
        let values = delta.len();
        Ok(Self {
            layout: Arc::new(layout(values)?),
            from: from % values,
            delta,
        })
    }
}

/// The delta of a [`Ready`] learner.
pub fn delta(values: usize, seed: u64) -> Arc<[f32]> {
    (0..values as u64).map(|i| heavy_tailed(seed, i)).collect()
}

/// The layout of a [`Ready`] model: a few large matrices and one small vector, as real models have.
///
/// # Errors
/// If no layout can have so many values.
pub fn layout(values: usize) -> anyhow::Result<Layout> {
    ensure!(values > 0, "a model has at least one value");
    let bias = (values / 1000).clamp(1, 512).min(values);
    let rest = values - bias;
    let halves = [rest / 2, rest - rest / 2];
    let weights = halves
        .into_iter()
        .enumerate()
        .filter(|(_, n)| *n > 0)
        .map(|(i, n)| (format!("fc{i}.weight"), vec![n]));
    Ok(Layout::new(weights.chain([("fc.bias".to_owned(), vec![bias])]))?)
}

impl Learner for Ready {
    fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    fn load(&mut self, _: &[f32]) -> anyhow::Result<()> {
        Ok(())
    }

    fn fit(&mut self, _: &FitPlan) -> anyhow::Result<Fit> {
        self.from = (self.from + 1) % self.delta.len();
        Ok(Fit::new(100, 0.0))
    }

    fn weights(&self, _: &mut [f32]) -> anyhow::Result<()> {
        bail!("this learner has updates only; the run must have no counters")
    }

    fn update(&self, _: &[f32], out: &mut [f32]) -> anyhow::Result<()> {
        ensure!(
            out.len() == self.delta.len(),
            "{} places for {} values",
            out.len(),
            self.delta.len()
        );
        let (last, first) = self.delta.split_at(self.from);
        out[..first.len()].copy_from_slice(first);
        out[first.len()..].copy_from_slice(last);
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        Ok(None)
    }
}

/// A value with the tails of a Laplace distribution of scale 1e-3: the logarithm of a hashed uniform, with a sign.
fn heavy_tailed(seed: u64, index: u64) -> f32 {
    let hash = Dice(seed ^ Dice(index.wrapping_add(1)).next()).next();
    let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let magnitude = -1e-3 * uniform.ln();
    (if hash & 1 == 0 { magnitude } else { -magnitude }) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_hold_exactly_the_values_asked_for() {
        for values in [1, 2, 3, 1000, 100_000, 1_000_000] {
            assert_eq!(layout(values).unwrap().len(), values);
        }
        assert!(layout(0).is_err());
    }

    #[test]
    fn each_update_is_the_delta_from_the_next_place_on() {
        let mut learner = Ready::shifted([1.0, 2.0, 3.0].into(), 4).unwrap();
        let mut out = [0.0; 3];
        for want in [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 1.0]] {
            learner.fit(&FitPlan::new(Default::default(), 1, 3, 0)).unwrap();
            learner.update(&[], &mut out).unwrap();
            assert_eq!(out, want);
        }
    }

    #[test]
    fn deltas_are_heavy_tailed_and_repeatable() {
        let values: Vec<f32> = (0..10_000).map(|i| heavy_tailed(7, i)).collect();
        let mean = values.iter().map(|v| f64::from(v.abs())).sum::<f64>() / 1e4;
        assert!((mean - 1e-3).abs() < 5e-5, "{mean}");
        assert!((values.iter().map(|&v| f64::from(v)).sum::<f64>() / 1e4).abs() < 5e-5);
        assert_eq!(heavy_tailed(7, 3), values[3]);
        assert_ne!(heavy_tailed(8, 3), values[3]);
    }
}
