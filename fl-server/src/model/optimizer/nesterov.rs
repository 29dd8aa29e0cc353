//! Nesterov momentum on the server, DiLoCo's outer optimizer (Douillard et al. 2023), in the form of PyTorch's SGD.
//!
//! ```text
//! m_t = momentum * m_(t-1) + D_t        D_t: aggregate of round t; m_0 = 0
//! x  += learning_rate * (D_t + momentum * m_t)
//! ```

use super::method::{OptimizerMethod, ServerOptimizer};
use super::state::{load_vectors, save_vectors};
use crate::config::plan::{Bound, Key, MethodInfo, Range, any_uplink};

pub(super) static METHOD: OptimizerMethod = OptimizerMethod {
    info: MethodInfo {
        name: "nesterov",
        about: "Nesterov momentum on the server, for many local steps (DiLoCo, Douillard et al. 2023)",
        keys: &[
            Key {
                name: "learning_rate",
                default: 0.7,
                range: Range::Positive,
                about: "factor of the aggregate and the momentum ahead of it",
            },
            Key {
                name: "momentum",
                default: 0.9,
                range: Range::Below(1.0),
                about: "part of the momentum that is left after a round",
            },
        ],
        // Of one aggregate: 1 at once, and the powers of the momentum from the first on.
        bound: |spec, _| {
            Bound::gain(f64::from(spec.number("learning_rate")) / (1.0 - f64::from(spec.number("momentum"))))
        },
        accepts: any_uplink,
    },
    build: |spec, len| {
        Box::new(Nesterov {
            learning_rate: spec.number("learning_rate"),
            momentum: spec.number("momentum"),
            velocity: vec![0.0; len],
        })
    },
};

#[derive(Debug)]
struct Nesterov {
    learning_rate: f32,
    momentum: f32,
    /// Shapes: `[len]`.
    velocity: Vec<f32>,
}

impl ServerOptimizer for Nesterov {
    fn update(&mut self, _round: u64, aggregate: &mut [f32]) {
        for (value, velocity) in aggregate.iter_mut().zip(&mut self.velocity) {
            *velocity = self.momentum * *velocity + *value;
            *value = self.learning_rate * (*value + self.momentum * *velocity);
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        save_vectors(&[&self.velocity], out);
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        load_vectors(bytes, [&mut self.velocity])
    }
}
