//! The weights of sections in a budget (see [`Weight`]).

use crate::spec::weight::Weight;

// Bounds of a weight by Fisher information, so that no tensor starves or takes everything.
const LEAST: f64 = 1.0 / 1024.0;
const MOST: f64 = 1024.0;

/// One section: its requested weight, values, and squared gradients if there are any.
pub(crate) struct WeightedSection<'a> {
    pub(crate) weight: Weight,
    pub(crate) values: &'a [f32],
    pub(crate) squared_gradients: Option<&'a [f32]>,
}

pub(crate) fn factors(sections: &[WeightedSection<'_>]) -> Vec<f64> {
    let saliences: Vec<Option<Salience>> = sections
        .iter()
        .map(|section| match (section.weight, section.squared_gradients) {
            (Weight::Fisher, Some(squared)) => Some(Salience::of(section.values, squared)),
            _ => None,
        })
        .collect();
    let all = saliences
        .iter()
        .flatten()
        .fold(Salience::default(), |sum, one| Salience {
            energy: sum.energy + one.energy,
            weighted: sum.weighted + one.weighted,
        });
    sections
        .iter()
        .zip(&saliences)
        .map(
            |(section, salience): (&WeightedSection<'_>, &Option<Salience>)| match (section.weight, salience) {
                (Weight::Number(number), _) => number,
                (Weight::Fisher, Some(one)) if one.energy > 0.0 && all.weighted > 0.0 => {
                    (one.mean() / all.mean()).clamp(LEAST, MOST)
                }
                (Weight::Fisher, _) => 1.0,
            },
        )
        .collect()
}

/// Sums over the values of a section.
#[derive(Debug, Clone, Copy, Default)]
struct Salience {
    /// Of `v^2`.
    energy: f64,
    /// Of `F v^2`: twice what leaving the values out costs in loss, to second order (LeCun et al. 1990, equation 5, with
    /// the Fisher diagonal for the Hessian's).
    weighted: f64,
}

impl Salience {
    fn of(values: &[f32], squared: &[f32]) -> Self {
        let mut sums = Self::default();
        for (value, squared) in values.iter().zip(squared) {
            let energy = f64::from(*value) * f64::from(*value);
            sums.energy += energy;
            sums.weighted += f64::from(*squared) * energy;
        }
        sums
    }

    /// Mean of the squared gradients, weighted by the squared values.
    fn mean(&self) -> f64 {
        self.weighted / self.energy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weight: Weight, values: &[f32], squared: &[f32]) -> Vec<f64> {
        let section = |values, squared_gradients| WeightedSection {
            weight,
            values,
            squared_gradients,
        };
        factors(&[section(values, Some(squared)), section(&[1.0, 1.0], Some(&[1.0, 1.0]))])
    }

    /// `F v^2` sums to 4 * 1 + 2 * 9 = 22 over energy 10, and to 2 over 2: the means are 2.2, 1 and 2 for both.
    #[test]
    fn fisher_weights_are_means_of_squared_gradients_over_their_mean() {
        let close = |found: Vec<f64>, expected: [f64; 2]| {
            assert!(
                found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12),
                "{found:?}"
            );
        };
        close(of(Weight::Fisher, &[1.0, 3.0], &[4.0, 2.0]), [1.1, 0.5]);
        close(of(Weight::Number(3.0), &[1.0, 3.0], &[4.0, 2.0]), [3.0, 3.0]);
        // Bounded below, and 1 where nothing is known.
        close(of(Weight::Fisher, &[1.0, 3.0], &[0.0, 0.0]), [LEAST, 6.0]);
        close(of(Weight::Fisher, &[0.0, 0.0], &[4.0, 2.0]), [1.0, 1.0]);
        let unknown = WeightedSection {
            weight: Weight::Fisher,
            values: &[1.0],
            squared_gradients: None,
        };
        assert_eq!(factors(&[unknown]), [1.0]);
    }

    #[test]
    fn extreme_values_give_finite_weights() {
        for (value, squared) in [(f32::MAX, f32::MAX), (f32::from_bits(1), f32::from_bits(1)), (1.0, 0.0)] {
            let found = of(Weight::Fisher, &[value, value], &[squared, squared]);
            assert!(found.iter().all(|weight| (LEAST..=MOST).contains(weight)), "{found:?}");
        }
    }
}
