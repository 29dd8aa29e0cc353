//! The `[cohort]` table.

use serde::{Deserialize, Serialize};
use toml::Value;

use crate::clock::Millis;
use crate::config::plan::error::{PlanError, rule, value};

/// The records of a round hold the names of its cohort.
pub const MAX_COHORT: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// Uniformly, by the run's seed.
    #[default]
    Uniform,
}

/// How many clients a round asks, and when it closes. `1 <= min <= target <= size`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cohort {
    pub select: Select,
    pub size: usize,
    /// With fewer answers at the deadline, the round is tried again.
    pub min: usize,
    /// With so many answers, the round closes after the time of grace.
    pub target: usize,
    /// Time to wait for further answers after `target`.
    pub grace: Millis,
    /// Time after which the round closes with at least `min` answers, or is tried again.
    pub deadline: Millis,
    /// Attempts after the first before the run fails.
    pub retries: u32,
    /// How long the round waits for a client that is not connected.
    pub absent: Millis,
    /// Whether each client has a budget with which the cohort finishes together.
    pub align: bool,
}

impl Cohort {
    /// When the grace that begins at `at` ends.
    pub fn grace_from(&self, at: Millis) -> Millis {
        at.saturating_add(self.grace)
    }
}

/// The table as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCohort {
    #[serde(default)]
    select: Select,
    size: Option<usize>,
    min: usize,
    target: usize,
    clients: Option<usize>,
    #[serde(default = "ten_seconds")]
    grace: Value,
    #[serde(default = "five_minutes")]
    deadline: Value,
    #[serde(default = "three")]
    retries: u32,
    #[serde(default = "ten_seconds")]
    absent: Value,
    #[serde(default)]
    align: bool,
}

impl RawCohort {
    /// Whether each round asks every client of the federation and waits for all of them until its deadline.
    pub(super) fn everyone(&self) -> bool {
        self.clients.is_some_and(|clients| self.target >= clients)
    }

    pub(super) fn checked(self) -> Result<Cohort, PlanError> {
        let Self {
            select,
            min,
            target,
            retries,
            align,
            ..
        } = self;
        let size = self.size.unwrap_or(target);
        rule(min >= 1, "cohort.min", &min, "must be at least 1")?;
        rule(
            target >= min,
            "cohort.target",
            &target,
            format!("must be at least cohort.min, {min}"),
        )?;
        rule(
            size >= target,
            "cohort.size",
            &size,
            format!("must be at least cohort.target, {target}"),
        )?;
        if let Some(clients) = self.clients {
            rule(clients >= 1, "cohort.clients", &clients, "must be at least 1")?;
        }
        rule(
            size <= MAX_COHORT,
            "cohort.size",
            &size,
            format!("must be at most {MAX_COHORT}"),
        )?;
        rule(retries <= 1_000, "cohort.retries", &retries, "must be at most 1000")?;
        let grace = duration("cohort.grace", &self.grace)?;
        let deadline = duration("cohort.deadline", &self.deadline)?;
        rule(deadline > 0, "cohort.deadline", &self.deadline, "must be above 0")?;
        let absent = duration("cohort.absent", &self.absent)?;
        Ok(Cohort {
            select,
            size,
            min,
            target,
            grace,
            deadline,
            retries,
            absent,
            align,
        })
    }
}

/// Longest duration: 30 days.
const MAX_DURATION: Millis = 30 * 24 * 3_600_000;

fn duration(key: &'static str, given: &Value) -> Result<Millis, PlanError> {
    let millis = given.as_str().and_then(fl_compress::duration::millis);
    let rule = "must be a whole number with `ms`, `s`, `min` or `h`, such as \"10s\", at most 720h";
    let millis = millis.filter(|&millis| millis <= MAX_DURATION);
    millis.ok_or_else(|| value(key, given, rule.to_owned()))
}

fn three() -> u32 {
    3
}

fn ten_seconds() -> Value {
    "10s".into()
}

fn five_minutes() -> Value {
    "5min".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_out_of_range_names_key_and_value() {
        assert_eq!(duration("cohort.grace", &"720h".into()), Ok(MAX_DURATION));
        for bad in [Value::from("721h"), Value::from("10 parsecs"), Value::from(20)] {
            let error = duration("cohort.grace", &bad).unwrap_err().to_string();
            let shown = format!("cohort.grace = {bad}");
            assert!(error.contains(&shown) && error.contains("such as \"10s\""), "{error}");
        }
    }
}
