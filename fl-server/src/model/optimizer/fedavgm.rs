//! FedAvgM: momentum on the server.
//!
//! ```text
//! m_t = momentum * m_(t-1) + D_t        D_t: aggregate of round t; m_0 = 0
//! x  += learning_rate * m_t
//! ```

use super::method::{OptimizerMethod, ServerOptimizer, learning_rate};
use super::state::{load_vectors, save_vectors};
use crate::config::plan::{Bound, Key, MethodInfo, MethodSpec, Range, any_uplink};

pub(super) static METHOD: OptimizerMethod = OptimizerMethod {
    info: MethodInfo {
        name: "fedavgm",
        about: "momentum on the server (Hsu et al. 2019; SGD with momentum in Reddi et al. 2021)",
        keys: &[learning_rate(1.0, "factor of the momentum"), MOMENTUM],
        bound: |spec, _| Momentum::bound(spec),
        accepts: any_uplink,
    },
    build: |spec, len| Momentum::build(spec, len, false),
};

pub(super) const MOMENTUM: Key = Key {
    name: "momentum",
    default: 0.9,
    range: Range::Below(1.0),
    about: "part of the momentum that is left after a round",
};

/// The momentum of the aggregates; shared with Nesterov's.
#[derive(Debug)]
pub(super) struct Momentum {
    learning_rate: f32,
    momentum: f32,
    /// Whether a step is the aggregate and the momentum ahead of it, in place of the momentum.
    is_ahead: bool,
    /// Shapes: `[len]`.
    velocity: Vec<f32>,
}

impl Momentum {
    pub(super) fn build(spec: &MethodSpec, len: usize, is_ahead: bool) -> Box<dyn ServerOptimizer> {
        Box::new(Self {
            learning_rate: spec.number("learning_rate"),
            momentum: spec.number("momentum"),
            is_ahead,
            velocity: vec![0.0; len],
        })
    }

    /// The bound of both: of one aggregate, the sum of the powers of the momentum.
    pub(super) fn bound(spec: &MethodSpec) -> Bound {
        Bound::gain(f64::from(spec.number("learning_rate")) / (1.0 - f64::from(spec.number("momentum"))))
    }
}

impl ServerOptimizer for Momentum {
    fn update(&mut self, _round: u64, aggregate: &mut [f32]) {
        for (value, velocity) in aggregate.iter_mut().zip(&mut self.velocity) {
            *velocity = self.momentum * *velocity + *value;
            let ahead = *value + self.momentum * *velocity;
            *value = self.learning_rate * if self.is_ahead { ahead } else { *velocity };
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        save_vectors(&[&self.velocity], out);
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        load_vectors(bytes, [&mut self.velocity])
    }
}
