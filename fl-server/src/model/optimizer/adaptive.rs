//! What the adaptive optimizers share: algorithm 2 of Reddi et al. 2021, "Adaptive Federated Optimization".
//!
//! ```text
//! m_t = beta1 * m_(t-1) + (1 - beta1) * D_t      D_t: aggregate of round t; m_0 = 0
//! v_t = rule(v_(t-1), D_t^2)                     v_0 = tau^2; the only line in which the optimizers differ
//! x  += learning_rate * m_t / (sqrt(v_t) + tau)
//! ```
//!
//! All of it coordinate by coordinate, in `f32`, in the order in which it is written here. There is no bias correction.

use std::fmt;

use super::method::{ServerOptimizer, learning_rate};
use super::state::{load_vectors, save_vectors};
use crate::config::plan::{Bound, Key, MethodSpec, Range};

pub(super) const fn rate(default: f32) -> Key {
    learning_rate(default, "about the largest change of a value in a round")
}

pub(super) const fn beta1(default: f32) -> Key {
    Key {
        name: "beta1",
        default,
        range: Range::Below(1.0),
        about: "part of the first moment that is left after a round",
    }
}

pub(super) const BETA2: Key = Key {
    name: "beta2",
    default: 0.99,
    range: Range::Below(1.0),
    about: "part of the second moment that is left after a round",
};

pub(super) const TAU: Key = Key {
    name: "tau",
    default: 1e-3,
    range: Range::Within(1e-9, 1.0),
    about: "degree of adaptivity: values whose aggregates are far below it move less",
};

/// The bound of an optimizer with a second moment of at most `squares` times the largest squared input, plus `tau^2`.
///
/// The first moment is a mean of aggregates and the divisor is at least `tau`, so the gain is at most
/// `learning_rate / tau`. The factor 4 leaves room for `tau^2` and for rounding.
pub(super) fn bound(spec: &MethodSpec, squares: f64) -> Bound {
    Bound {
        gain: f64::from(spec.number("learning_rate")) / f64::from(spec.number("tau")),
        constant: 0.0,
        largest_input: (f64::from(f32::MAX) / (4.0 * squares)).sqrt(),
    }
}

/// An optimizer whose second moment follows `rule(v, D^2)`.
pub(super) fn adaptive<R>(spec: &MethodSpec, len: usize, rule: R) -> Box<dyn ServerOptimizer>
where
    R: Fn(f32, f32) -> f32 + Send + 'static,
{
    let tau = spec.number("tau");
    Box::new(Adaptive {
        learning_rate: spec.number("learning_rate"),
        beta1: spec.number("beta1"),
        tau,
        first: vec![0.0; len],
        second: vec![tau * tau; len],
        rule,
    })
}

struct Adaptive<R> {
    learning_rate: f32,
    beta1: f32,
    tau: f32,
    /// First moment. Shapes: `[len]`.
    first: Vec<f32>,
    /// Second moment. Shapes: `[len]`.
    second: Vec<f32>,
    rule: R,
}

impl<R: Fn(f32, f32) -> f32 + Send> ServerOptimizer for Adaptive<R> {
    fn update(&mut self, _round: u64, aggregate: &mut [f32]) {
        let moments = self.first.iter_mut().zip(&mut self.second);
        for (value, (first, second)) in aggregate.iter_mut().zip(moments) {
            *first = self.beta1 * *first + (1.0 - self.beta1) * *value;
            *second = (self.rule)(*second, *value * *value);
            *value = self.learning_rate * *first / (second.sqrt() + self.tau);
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        save_vectors(&[&self.first, &self.second], out);
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        load_vectors(bytes, [&mut self.first, &mut self.second])
    }
}

impl<R> fmt::Debug for Adaptive<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive")
            .field("learning_rate", &self.learning_rate)
            .field("beta1", &self.beta1)
            .field("tau", &self.tau)
            .finish_non_exhaustive()
    }
}
