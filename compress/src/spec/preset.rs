//! Named specs: `preset = ".."` in place of the keys that it sets.

use serde::{Deserialize, Serialize};

/// A spec by name. Keys beside it replace what they name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Every value as float32, without memory.
    Exact,
    /// SparseLoCo (arXiv 2508.15706), for many local steps: the largest 2 % of each chunk of 4096 values at 2 bits, and error
    /// feedback that fades by 0.95 a round, in place of momentum on the server.
    Sparseloco,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 2] = [Self::Exact, Self::Sparseloco];

    /// Name in TOML.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Sparseloco => "sparseloco",
        }
    }
}
