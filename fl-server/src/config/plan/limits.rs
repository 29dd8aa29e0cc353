//! The rules of the `[limits]` table.

use crate::config::limits::Limits;
use crate::config::plan::error::{PlanError, rule};

/// # Errors
/// `Value`; also for a value that is not a number.
pub(super) fn checked(limits: Limits) -> Result<Limits, PlanError> {
    for (key, value) in [
        ("limits.examples", limits.examples),
        ("limits.max_examples", limits.max_examples),
        ("limits.norm", limits.norm),
    ] {
        rule(value >= 1.0, key, &value, "must be at least 1, or inf")?;
    }
    let Limits {
        share, norm, max_norm, ..
    } = limits;
    rule(
        share > 0.0 && share <= 1.0,
        "limits.share",
        &share,
        "must be above 0 and at most 1",
    )?;
    rule(max_norm > 0.0, "limits.max_norm", &max_norm, "must be above 0, or inf")?;
    rule(
        limits.discard >= norm,
        "limits.discard",
        &limits.discard,
        format!("must be at least limits.norm, {norm}, or inf"),
    )?;
    Ok(limits)
}
