//! Differential entropy of the values of a tensor, from a sample (GDS of EDGC, arXiv 2511.10333).

use std::f64::consts::{E, PI};

use crate::math::{self, square};
use crate::rng::KeyedRng;

// Tensors whose sample would be smaller are read whole.
const LEAST: usize = 256;
// Bins per deviation of the histogram, and deviations on each side.
const PER_DEVIATION: f64 = 16.0;
const DEVIATIONS: f64 = 8.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Estimate {
    /// `ln(2 pi e sigma^2) / 2`: that of Gaussian values of the same deviation.
    #[default]
    Gaussian,
    /// `-sum p ln p + ln width` over bins of a width that was fixed in the first round: bins that follow the deviation would
    /// hide every change of scale.
    Histogram,
}

/// A share of the values, drawn by `rng`.
pub(crate) fn sample(values: &[f32], share: f64, rng: KeyedRng) -> Vec<f64> {
    let count = (values.len() as f64 * share) as usize;
    if count < LEAST || count >= values.len() {
        return values.iter().copied().map(f64::from).collect();
    }
    // One draw in each of `count` equal ranges.
    let width = values.len() as f64 / count as f64;
    (0..count)
        .map(|at: usize| values[(((at as f64) + f64::from(rng.unit(at))) * width) as usize % values.len()])
        .map(f64::from)
        .collect()
}

/// Standard deviation; 0 if there are no values.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| square(value - mean)).sum::<f64>() / count).sqrt()
}

impl Estimate {
    /// Entropy in nats; `None` if all values are equal. `reference`: the deviation that sets the width of the bins.
    pub(crate) fn of(self, values: &[f64], reference: f64) -> Option<f64> {
        let deviation = deviation(values);
        if !(deviation > 0.0 && deviation.is_finite() && reference > 0.0) {
            return None;
        }
        match self {
            Self::Gaussian => Some(0.5 * math::ln(2.0 * PI * E) + math::ln(deviation)),
            Self::Histogram => {
                let width = reference / PER_DEVIATION;
                let bins = (2.0 * PER_DEVIATION * DEVIATIONS) as usize;
                let mut counts = vec![0u32; bins];
                for value in values {
                    let place = (value / width + bins as f64 / 2.0).floor();
                    counts[place.clamp(0.0, bins as f64 - 1.0) as usize] += 1;
                }
                let count = values.len() as f64;
                let nonzero = counts.into_iter().filter(|&count| count > 0).map(f64::from);
                let sum: f64 = nonzero.map(|own| own / count * math::ln(own / count)).sum();
                Some(math::ln(width) - sum)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::{gaussian, laplace};

    fn wide(values: &[f32]) -> Vec<f64> {
        values.iter().copied().map(f64::from).collect()
    }

    #[test]
    fn entropy_shifts_by_the_logarithm_of_a_factor() {
        let values = wide(&gaussian(20_000, 1));
        for estimate in [Estimate::Gaussian, Estimate::Histogram] {
            let before = estimate.of(&values, 1.0).unwrap();
            // ln(2 pi e) / 2 = 1.4189 for the unit Gaussian.
            assert!((before - 1.4189).abs() < 0.03, "{estimate:?}: {before}");
            for factor in [0.5f64, 2.0] {
                let scaled: Vec<f64> = values.iter().map(|value| value * factor).collect();
                let after = estimate.of(&scaled, 1.0).unwrap();
                assert!((after - before - factor.ln()).abs() < 0.03, "{estimate:?}: {after}");
            }
        }
        assert_eq!(Estimate::Gaussian.of(&[0.0; 9], 1.0), None);
        assert_eq!(Estimate::Gaussian.of(&[f64::NAN; 9], 1.0), None);
    }

    #[test]
    fn a_quarter_of_the_values_has_about_the_same_entropy() {
        for values in [gaussian(12_000, 3), laplace(12_000, 4)] {
            let sampled = sample(&values, 0.25, KeyedRng::new(5, 0));
            assert_eq!(sampled.len(), 3000);
            for estimate in [Estimate::Gaussian, Estimate::Histogram] {
                let (full, part) = (estimate.of(&wide(&values), 1.0), estimate.of(&sampled, 1.0));
                assert!((full.unwrap() - part.unwrap()).abs() < 0.1, "{estimate:?}");
            }
        }
        assert_eq!(
            sample(&[1.0; 1000], 0.25, KeyedRng::new(5, 0)).len(),
            1000,
            "too few for a sample"
        );
    }
}
