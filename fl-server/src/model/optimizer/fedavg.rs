//! FedAvg: the model update is the aggregate, times a server learning rate.

use super::method::{OptimizerMethod, ServerOptimizer, learning_rate};
use crate::config::plan::{Bound, MethodInfo, any_uplink};

pub(super) static METHOD: OptimizerMethod = OptimizerMethod {
    info: MethodInfo {
        name: "fedavg",
        about: "the aggregate itself, times a learning rate (McMahan et al. 2017, algorithm 1)",
        keys: &[learning_rate(1.0, "factor of the aggregate")],
        bound: |spec, _| Bound::gain(f64::from(spec.number("learning_rate"))),
        accepts: any_uplink,
    },
    build: |spec, _| {
        Box::new(FedAvg {
            learning_rate: spec.number("learning_rate"),
        })
    },
};

#[derive(Debug)]
struct FedAvg {
    learning_rate: f32,
}

impl ServerOptimizer for FedAvg {
    fn update(&mut self, _round: u64, aggregate: &mut [f32]) {
        if self.learning_rate != 1.0 {
            aggregate.iter_mut().for_each(|value| *value *= self.learning_rate);
        }
    }

    fn save(&self, _out: &mut Vec<u8>) {}

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            Ok(())
        } else {
            Err("fedavg has no state".to_owned())
        }
    }
}
