//! The `[limits]` table.

use serde::Deserialize;

use crate::config::limits::Limits;
use crate::config::plan::error::{PlanError, rule};

/// The table as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    examples: f64,
    max_examples: f64,
    share: f64,
    norm: f64,
    max_norm: f64,
    discard: f64,
}

impl Default for Raw {
    fn default() -> Self {
        let Limits {
            examples,
            max_examples,
            share,
            norm,
            max_norm,
            discard,
        } = Limits::default();
        Self {
            examples,
            max_examples,
            share,
            norm,
            max_norm,
            discard,
        }
    }
}

impl Raw {
    /// # Errors
    /// `Value`; also for a value that is not a number.
    pub(super) fn checked(self) -> Result<Limits, PlanError> {
        let Self {
            examples,
            max_examples,
            share,
            norm,
            max_norm,
            discard,
        } = self;
        for (key, value) in [
            ("limits.examples", examples),
            ("limits.max_examples", max_examples),
            ("limits.norm", norm),
        ] {
            rule(value >= 1.0, key, &value, || "must be at least 1, or inf".to_owned())?;
        }
        rule(share > 0.0 && share <= 1.0, "limits.share", &share, || {
            "must be above 0 and at most 1".to_owned()
        })?;
        rule(max_norm > 0.0, "limits.max_norm", &max_norm, || {
            "must be above 0, or inf".to_owned()
        })?;
        rule(discard >= norm, "limits.discard", &discard, || {
            format!("must be at least limits.norm, {norm}, or inf")
        })?;
        Ok(Limits {
            examples,
            max_examples,
            share,
            norm,
            max_norm,
            discard,
        })
    }
}
