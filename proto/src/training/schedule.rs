//! Names of the changes of the learning rate.

use serde::{Deserialize, Serialize};

/// How the learning rate changes over the rounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// The same in every round.
    #[default]
    Constant,
    /// From the full rate in round 1 down to zero after the last, along half a cosine.
    Cosine,
    /// Multiplied by `factor` after every `every` rounds.
    Step {
        /// Rounds between two changes, at least 1.
        every: u32,
        /// Multiplier, above 0 and at most 1.
        factor: f32,
    },
}

/// How the learning rate changes over the steps after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// It stays.
    #[default]
    Constant,
    /// Down to the floor along a line.
    Linear,
    /// Down to the floor along half a cosine.
    Cosine,
}

/// The steps that warm-up and decay span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// Those of one round, anew in each.
    #[default]
    Round,
    /// Those of all rounds of the run. A client counts the steps of a round that it missed as its own.
    Run,
}
