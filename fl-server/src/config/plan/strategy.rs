//! The `[strategy]` table.

use serde::{Deserialize, Serialize};

/// How the server turns the average update into a step; the `[strategy]` table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
pub enum StrategySpec {
    /// The average itself, times a learning rate (McMahan et al. 2017, algorithm 1).
    FedAvg {
        /// Server learning rate, finite and above 0; 1 by default.
        #[serde(default = "one")]
        learning_rate: f32,
    },
}

impl Default for StrategySpec {
    fn default() -> Self {
        Self::FedAvg { learning_rate: one() }
    }
}

fn one() -> f32 {
    1.0
}
