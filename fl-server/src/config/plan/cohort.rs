//! The `[cohort]` table.

use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::config::plan::duration;
use crate::config::plan::error::{PlanError, rule};

/// Most clients in a cohort.
pub const MAX_COHORT: usize = 100_000;

/// How a cohort is chosen among the clients that are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// Each as likely as any other, by the run's seed.
    #[default]
    Uniform,
}

/// Who is asked in a round, and when the round closes. `1 <= min <= target <= size`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cohort {
    /// How clients are chosen.
    pub select: Select,
    /// Clients asked.
    pub size: usize,
    /// Fewer answers than this: the round is tried again.
    pub min: usize,
    /// This many answers: it may close.
    pub target: usize,
    /// How much longer the rest is waited for.
    pub grace: Millis,
    /// When it closes with at least `min`, or is tried again.
    pub deadline: Millis,
    /// How often it is tried again before the run gives up.
    pub retries: u32,
    /// How long a client may be away before it is not waited for any more. Left out of the plan's identity at its
    /// default, which runs have that were begun without this key.
    #[serde(skip_serializing_if = "is_default_absent")]
    pub absent: Millis,
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
    grace: String,
    #[serde(default = "five_minutes")]
    deadline: String,
    #[serde(default = "three")]
    retries: u32,
    #[serde(default = "ten_seconds")]
    absent: String,
}

impl RawCohort {
    /// Whether each round asks every client of the federation, and waits for all of them until its deadline.
    pub(super) fn everyone(&self) -> bool {
        self.clients.is_some_and(|clients| self.target >= clients)
    }

    pub(super) fn checked(self) -> Result<Cohort, PlanError> {
        let Self {
            select,
            min,
            target,
            retries,
            ..
        } = self;
        let size = self.size.unwrap_or(target);
        rule(min >= 1, "cohort.min", &min, || "must be at least 1".to_owned())?;
        rule(target >= min, "cohort.target", &target, || {
            format!("must be at least cohort.min, {min}")
        })?;
        rule(size >= target, "cohort.size", &size, || {
            format!("must be at least cohort.target, {target}")
        })?;
        if let Some(clients) = self.clients {
            rule(clients >= 1, "cohort.clients", &clients, || {
                "must be at least 1".to_owned()
            })?;
        }
        rule(size <= MAX_COHORT, "cohort.size", &size, || {
            format!("must be at most {MAX_COHORT}")
        })?;
        rule(retries <= 1_000, "cohort.retries", &retries, || {
            "must be at most 1000".to_owned()
        })?;
        let grace = duration::parse("cohort.grace", &self.grace)?;
        let deadline = duration::parse("cohort.deadline", &self.deadline)?;
        rule(deadline > 0, "cohort.deadline", &self.deadline, || {
            "must be above 0".to_owned()
        })?;
        let absent = duration::parse("cohort.absent", &self.absent)?;
        Ok(Cohort {
            select,
            size,
            min,
            target,
            grace,
            deadline,
            retries,
            absent,
        })
    }
}

fn three() -> u32 {
    3
}

fn ten_seconds() -> String {
    "10s".to_owned()
}

fn is_default_absent(absent: &Millis) -> bool {
    *absent == 10_000
}

fn five_minutes() -> String {
    "5min".to_owned()
}
