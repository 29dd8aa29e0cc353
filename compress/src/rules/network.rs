//! A network of one hidden layer that predicts numbers from features.
//!
//! `z = B tanh(A x + a) + b`, trained on the squared error by Adam (Kingma and Ba 2015). Arithmetic is in `f64` and in a fixed
//! order. Only encoders run it, so machines may differ in the last bit of a prediction.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::math;
use crate::rng::KeyedRng;

const HIDDEN: usize = 16;
const RATE: f64 = 0.01;
// Adam's own defaults (Kingma and Ba 2015, algorithm 1).
const DECAY: [f64; 2] = [0.9, 0.999];

/// The network and the state of its optimizer, for `IN` features and `OUT` predictions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Network<const IN: usize, const OUT: usize> {
    /// `HIDDEN` rows of `IN` weights and a bias, then `OUT` rows of `HIDDEN` weights and a bias.
    weights: Vec<f64>,
    moments: [Vec<f64>; 2],
    steps: u32,
}

impl<const IN: usize, const OUT: usize> Network<IN, OUT> {
    const FIRST: usize = HIDDEN * (IN + 1);
    const LEN: usize = Self::FIRST + OUT * (HIDDEN + 1);

    /// First weights uniform in `+-1 / sqrt(inputs)` of each layer, by `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let rng = KeyedRng::new(seed, 0);
        Self {
            weights: (0..Self::LEN)
                .map(|at: usize| {
                    let inputs = if at < Self::FIRST { IN } else { HIDDEN };
                    (2.0 * f64::from(rng.unit(at)) - 1.0) / (inputs as f64).sqrt()
                })
                .collect(),
            moments: [vec![0.0; Self::LEN], vec![0.0; Self::LEN]],
            steps: 0,
        }
    }

    /// Sets the biases of the predictions to `mean`: training then begins at the mean of its targets.
    pub(crate) fn center(&mut self, mean: &[f64; OUT]) {
        for (row, mean) in mean.iter().enumerate() {
            self.weights[Self::FIRST + row * (HIDDEN + 1) + HIDDEN] = *mean;
        }
    }

    fn hidden(&self, x: &[f64; IN]) -> [f64; HIDDEN] {
        std::array::from_fn(|row| math::tanh(affine(&self.weights[row * (IN + 1)..], x)))
    }

    fn outputs(&self, hidden: &[f64; HIDDEN]) -> [f64; OUT] {
        std::array::from_fn(|row| affine(&self.weights[Self::FIRST + row * (HIDDEN + 1)..], hidden))
    }

    pub(crate) fn predict(&self, x: &[f64; IN]) -> [f64; OUT] {
        self.outputs(&self.hidden(x))
    }

    /// One step on the mean of the examples: features and targets. Changes nothing if a weight would not be finite.
    pub(crate) fn train(&mut self, examples: &[([f64; IN], [f64; OUT])]) {
        if examples.is_empty() {
            return;
        }
        let mut slope = vec![0.0; Self::LEN];
        let share = 1.0 / examples.len() as f64;
        for (x, targets) in examples {
            let hidden = self.hidden(x);
            let outputs = self.outputs(&hidden);
            let mut back = [0.0; HIDDEN];
            for row in 0..OUT {
                let at = Self::FIRST + row * (HIDDEN + 1);
                let by_output = share * (outputs[row] - targets[row]);
                for unit in 0..HIDDEN {
                    slope[at + unit] += by_output * hidden[unit];
                    back[unit] += by_output * self.weights[at + unit];
                }
                slope[at + HIDDEN] += by_output;
            }
            for unit in 0..HIDDEN {
                let at = unit * (IN + 1);
                let by_sum = back[unit] * (1.0 - hidden[unit] * hidden[unit]);
                for (place, x) in slope[at..at + IN].iter_mut().zip(x) {
                    *place += by_sum * x;
                }
                slope[at + IN] += by_sum;
            }
        }
        self.step(&slope);
    }

    fn step(&mut self, slope: &[f64]) {
        let mut next = self.clone();
        next.steps = next.steps.saturating_add(1);
        let correct = DECAY.map(|decay| 1.0 - math::pow(decay, f64::from(next.steps)));
        let [first, second] = &mut next.moments;
        let moments = first.iter_mut().zip(second);
        for ((weight, slope), (first, second)) in next.weights.iter_mut().zip(slope).zip(moments) {
            *first += (1.0 - DECAY[0]) * (slope - *first);
            *second += (1.0 - DECAY[1]) * (slope * slope - *second);
            *weight -= RATE * (*first / correct[0]) / ((*second / correct[1]).sqrt() + 1e-8);
        }
        if next.weights.iter().all(|weight| weight.is_finite()) {
            *self = next;
        }
    }

    /// Succeeds for the numbers of such a network.
    ///
    /// # Errors
    /// `NotFinite`; `Mismatch` for a network of another size, or a negative second moment.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let [first, second] = &self.moments;
        let all = [&self.weights, first, second];
        if all.iter().any(|numbers| numbers.len() != Self::LEN) || second.iter().any(|number| *number < 0.0) {
            return Err(Error::Mismatch(
                "the state's network has other numbers than this version of the program; start with a new state"
                    .to_owned(),
            ));
        }
        if all.into_iter().flatten().all(|number| number.is_finite()) {
            return Ok(());
        }
        Err(Error::NotFinite("weight of a network".to_owned()))
    }
}

/// A row of weights times `x`, plus the bias after the row.
fn affine<const N: usize>(row: &[f64], x: &[f64; N]) -> f64 {
    x.iter().zip(row).fold(row[N], |sum, (x, weight)| sum + x * weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(at: usize) -> ([f64; 2], [f64; 3]) {
        let rng = KeyedRng::new(5, 1);
        let [x, y] = [0, 1].map(|feature| 2.0 * f64::from(rng.unit(2 * at + feature)) - 1.0);
        ([x, y], [x * y, x.max(y), 5.0 - x])
    }

    #[test]
    fn it_learns_functions_and_training_is_deterministic() {
        let mut twins = [Network::<2, 3>::new(1), Network::<2, 3>::new(1)];
        for network in &mut twins {
            network.center(&[0.0, 0.3, 5.0]);
            for step in 0..600 {
                let examples: Vec<_> = (0..16).map(|at| example(16 * step + at)).collect();
                network.train(&examples);
            }
        }
        assert_eq!(twins[0], twins[1]);
        assert_ne!(twins[0], Network::new(2));
        let errors = (100_000..101_000).flat_map(|at| {
            let (x, targets) = example(at);
            let found = twins[0].predict(&x);
            [0, 1, 2].map(|at| (found[at] - targets[at]).powi(2))
        });
        let mean = errors.sum::<f64>() / 3000.0;
        assert!(mean < 0.01, "{mean}");
    }

    #[test]
    fn numbers_of_another_network_are_refused() {
        let mut network = Network::<2, 3>::new(9);
        network.train(&[example(3)]);
        let before = network.clone();
        network.train(&[([f64::NAN, 0.0], [0.0; 3])]);
        assert_eq!(network, before, "NaN leaves the state as it was");
        assert_eq!(network.check(), Ok(()));
        let changed = |change: fn(&mut Network<2, 3>)| {
            let mut network = before.clone();
            change(&mut network);
            network.check().unwrap_err()
        };
        let refused = changed(|network| network.weights[4] = f64::NAN);
        assert!(matches!(refused, Error::NotFinite(_)), "{refused}");
        let refused = changed(|network| network.moments[1][0] = -1.0);
        assert!(matches!(refused, Error::Mismatch(_)), "{refused}");
        let refused = changed(|network| network.moments[0].truncate(3));
        assert!(matches!(refused, Error::Mismatch(_)), "{refused}");
    }
}
