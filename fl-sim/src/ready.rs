//! A learner that takes no time: it returns a delta made in advance. Measures everything except training.

use std::sync::Arc;

use anyhow::ensure;
use fl_client::{Evaluation, Fit, FitPlan, Learner};
use fl_compress::Layout;

/// Adds the same heavy-tailed delta in every round, rotated by one place each time, so that no two rounds are equal.
#[derive(Debug)]
pub struct Ready {
    layout: Arc<Layout>,
    weights: Vec<f32>,
    delta: Vec<f32>,
}

impl Ready {
    /// A learner for a model of `values` values whose delta derives from `seed`.
    ///
    /// # Errors
    /// If no layout can have so many values.
    pub fn new(values: usize, seed: u64) -> anyhow::Result<Self> {
        let layout = Arc::new(layout(values)?);
        let delta = (0..values as u64).map(|i| heavy_tailed(seed, i)).collect();
        Ok(Self {
            layout,
            weights: vec![0.0; values],
            delta,
        })
    }
}

/// The layout of a [`Ready`] model: a few large matrices and one small vector, as real models have.
///
/// # Errors
/// If no layout can have so many values.
pub fn layout(values: usize) -> anyhow::Result<Layout> {
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

    fn load(&mut self, weights: &[f32]) -> anyhow::Result<()> {
        ensure!(
            weights.len() == self.weights.len(),
            "{} weights for {} values",
            weights.len(),
            self.weights.len()
        );
        self.weights.copy_from_slice(weights);
        Ok(())
    }

    fn fit(&mut self, _: &FitPlan) -> anyhow::Result<Fit> {
        self.weights.iter_mut().zip(&self.delta).for_each(|(w, d)| *w += d);
        self.delta.rotate_left(1);
        Ok(Fit::new(100, 0.0))
    }

    fn weights(&self, out: &mut [f32]) -> anyhow::Result<()> {
        ensure!(
            out.len() == self.weights.len(),
            "{} places for {} values",
            out.len(),
            self.weights.len()
        );
        out.copy_from_slice(&self.weights);
        Ok(())
    }

    fn evaluate(&mut self) -> anyhow::Result<Option<Evaluation>> {
        Ok(None)
    }
}

/// A value with the tails of a Laplace distribution of scale 1e-3: the logarithm of a hashed uniform, with a sign.
fn heavy_tailed(seed: u64, index: u64) -> f32 {
    let hash = mix(seed ^ mix(index.wrapping_add(1)));
    let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let magnitude = -1e-3 * uniform.ln();
    (if hash & 1 == 0 { magnitude } else { -magnitude }) as f32
}

/// SplitMix64's finalizer (Steele, Lea and Flood 2014).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
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
    fn deltas_are_heavy_tailed_and_repeatable() {
        let values: Vec<f32> = (0..10_000).map(|i| heavy_tailed(7, i)).collect();
        let mean = values.iter().map(|v| f64::from(v.abs())).sum::<f64>() / 1e4;
        assert!((mean - 1e-3).abs() < 5e-5, "{mean}");
        assert!((values.iter().map(|&v| f64::from(v)).sum::<f64>() / 1e4).abs() < 5e-5);
        assert_eq!(heavy_tailed(7, 3), values[3]);
        assert_ne!(heavy_tailed(8, 3), values[3]);
    }
}
