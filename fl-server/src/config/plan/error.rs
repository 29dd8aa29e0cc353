//! Errors of a run.toml.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, or a key that is unknown, missing or of the wrong type.
    #[error("{0}")]
    Syntax(String),
    #[error("`{key} = {value}`: {rule}")]
    Value {
        /// The key with its table.
        key: String,
        value: String,
        rule: String,
    },
}

pub(super) fn rule(
    holds: bool,
    key: &str,
    found: &dyn std::fmt::Display,
    why: impl Into<String>,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(value(key, found, why)) }
}

pub(super) fn value(key: &str, found: &dyn std::fmt::Display, rule: impl Into<String>) -> PlanError {
    PlanError::Value {
        key: key.to_owned(),
        value: found.to_string(),
        rule: rule.into(),
    }
}
