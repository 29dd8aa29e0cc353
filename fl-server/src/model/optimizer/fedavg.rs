//! From the average update to the server's step.

use std::fmt::Debug;

use crate::config::plan::StrategySpec;

/// What the server does with the average update. Deterministic: the same averages in the same order, the same steps.
pub trait ServerOptimizer: Debug + Send {
    /// Turns the average update of `round` into the step of the model, in place. Shapes: `average: [layout.len()]`.
    fn step(&mut self, round: u64, average: &mut [f32]);

    /// Appends what is remembered from round to round to `out`; nothing if nothing is.
    fn save(&self, out: &mut Vec<u8>);

    /// Takes back what [`ServerOptimizer::save`] wrote.
    ///
    /// # Errors
    /// A text that says what is wrong with `bytes`.
    fn load(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// Federated averaging (McMahan et al. 2017, algorithm 1), with a server learning rate.
#[derive(Debug)]
struct FedAvg {
    learning_rate: f32,
}

impl ServerOptimizer for FedAvg {
    fn step(&mut self, _round: u64, average: &mut [f32]) {
        if self.learning_rate != 1.0 {
            average.iter_mut().for_each(|value| *value *= self.learning_rate);
        }
    }

    fn save(&self, _out: &mut Vec<u8>) {}

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            Ok(())
        } else {
            Err("fedavg remembers nothing".to_owned())
        }
    }
}

/// The strategy that the plan asks for.
pub(in crate::model) fn strategy(spec: &StrategySpec) -> Box<dyn ServerOptimizer> {
    match *spec {
        StrategySpec::FedAvg { learning_rate } => Box::new(FedAvg { learning_rate }),
    }
}
