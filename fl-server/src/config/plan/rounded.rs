//! `model.snapshot`: which versions are rounded, so that snapshots of them are short.

use fl_compress::ModelRounding;
use serde::{Deserialize, Serialize};

use crate::config::plan::error::{PlanError, rule};

/// Most versions between two that are rounded: as many as a run can have rounds.
const MAX_EVERY: u64 = 10_000_000;

/// Which versions of the model server and clients round, and how finely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table with `bits` and `every`, as in { bits = 12, every = 10 }"
)]
pub struct RoundedVersions {
    pub bits: ModelRounding,
    /// Every so many versions one is rounded.
    pub every: u64,
}

impl RoundedVersions {
    pub(super) fn checked(self) -> Result<Self, PlanError> {
        rule(
            (1..=MAX_EVERY).contains(&self.every),
            "model.snapshot.every",
            &self.every,
            format!("must be 1 to {MAX_EVERY} versions"),
        )?;
        Ok(self)
    }

    /// How the model update that makes `version` rounds the model, if it does.
    pub(crate) fn at(&self, version: u64) -> Option<ModelRounding> {
        (version > 0 && version.is_multiple_of(self.every)).then_some(self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_0_is_never_rounded() {
        let rounded: RoundedVersions = toml::from_str("bits = 12\nevery = 4").unwrap();
        let at: Vec<u64> = (0..=9).filter(|&version| rounded.at(version).is_some()).collect();
        assert_eq!(at, [4, 8]);
    }

    #[test]
    fn numbers_out_of_range_and_missing_ones_are_refused() {
        let read = |text: &str| {
            let read = toml::from_str::<RoundedVersions>(text).map_err(|e| e.to_string());
            read.and_then(|read| read.checked().map_err(|e| e.to_string()))
                .unwrap_err()
        };
        for (text, why) in [
            ("bits = 3\nevery = 1", "4 to 20 bits a value, not 3"),
            ("bits = 12\nevery = 0", "`model.snapshot.every = 0`"),
            ("bits = 12", "missing field `every`"),
            ("bits = 12\nevery = 1\nof = 2", "unknown field `of`"),
        ] {
            let refused = read(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
