//! The experiment: run.toml, parsed into a plan that cannot be out of range.

mod duration;
mod identity;
mod limits;
pub(crate) mod memory;

use std::path::{Path, PathBuf};

use fl_compress::Spec;
use fl_proto::{RunName, Training};
use serde::{Deserialize, Serialize};

pub use crate::config::limits::Limits;
use crate::storage::record::Millis;

/// Most rounds of a run.
pub const MAX_ROUNDS: u64 = 10_000_000;
/// Most clients in a cohort.
pub const MAX_COHORT: usize = 100_000;
/// Longest task name in bytes.
const MAX_TASK: usize = 64;

/// What is wrong with a run.toml.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It is not TOML, or a key is unknown, missing or of the wrong type.
    #[error("{0}")]
    Syntax(String),
    /// A value breaks a rule.
    #[error("`{key} = {value}`: {rule}")]
    Value {
        /// The key with its table.
        key: &'static str,
        /// The value as written.
        value: String,
        /// The rule that it breaks.
        rule: String,
    },
}

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

/// One experiment. Every field is checked: a plan cannot be out of range.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlan {
    /// Name of the run.
    pub name: RunName,
    /// What the clients work on: each of them binds it to a learner and data.
    pub task: String,
    /// Rounds, at least 1.
    pub rounds: u64,
    /// Seed of everything random: that of run.toml, else that from which the first weights were made, else 0.
    pub seed: u64,
    /// File of the first weights (safetensors).
    pub model: PathBuf,
    /// Who is asked, and when a round closes.
    pub cohort: Cohort,
    /// Local training.
    pub training: Training,
    /// From average to step.
    pub strategy: StrategySpec,
    /// How updates are compressed; exact where the table is missing. Its memory is never `Auto` or `Ef21`.
    pub uplink: Spec,
    /// How steps are compressed; exact where the table is missing. Its memory is `None` or `ErrorFeedback`.
    pub downlink: Spec,
    /// Whether clients evaluate each version.
    pub evaluate: bool,
    /// What one client may weigh in a round.
    pub limits: Limits,
    /// The text that all of this was read from, its seed resolved.
    pub text: PlanText,
}

/// The text of a run.toml. Any two are equal: plans are compared by what they ask for.
#[derive(Debug, Clone, Default)]
pub struct PlanText(pub String);

impl PartialEq for PlanText {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    task: String,
    rounds: u64,
    seed: Option<u64>,
    model: PathBuf,
    #[serde(default = "yes")]
    evaluate: bool,
    cohort: RawCohort,
    #[serde(default)]
    train: Training,
    #[serde(default = "fedavg")]
    strategy: StrategySpec,
    #[serde(default)]
    compression: RawCompression,
    #[serde(default)]
    limits: limits::Raw,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCohort {
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCompression {
    uplink: Spec,
    downlink: Spec,
}

impl RunPlan {
    /// Reads a run.toml, and where it gives no seed, the one that is noted in its file of first weights. `base` is the
    /// folder that its paths are relative to.
    ///
    /// # Errors
    /// As [`RunPlan::from_toml`]; `Value` if the seed is not given and the file that may note it cannot be read.
    pub fn load(text: &str, base: &Path) -> Result<Self, PlanError> {
        let (mut plan, seed) = Self::parse(text, base)?;
        if seed.is_none() {
            let path = plan.model.display().to_string();
            let origin = crate::storage::weights::origin(&plan.model).map_err(|why| {
                value(
                    "model",
                    &path,
                    format!("{why}; or give the run's `seed`, which the file would note"),
                )
            })?;
            plan.seed = origin.seed.unwrap_or(plan.seed);
            // The text is stored with the run, and must give the same plan where the file of first weights is gone.
            plan.text = PlanText(format!("seed = {} # of its first weights\n{text}", plan.seed));
        }
        Ok(plan)
    }

    /// Reads a run.toml and no other file: a seed that is not given is 0. `base` is the folder that its paths are relative
    /// to.
    ///
    /// # Errors
    /// `Syntax` with line and column, or `Value` with key, value and rule.
    pub fn from_toml(text: &str, base: &Path) -> Result<Self, PlanError> {
        Self::parse(text, base).map(|(plan, _)| plan)
    }

    /// The plan, its seed 0 if none is given, and the seed that is given.
    fn parse(text: &str, base: &Path) -> Result<(Self, Option<u64>), PlanError> {
        let raw: Raw = toml::from_str(text).map_err(|e| PlanError::Syntax(e.to_string().trim_end().to_owned()))?;
        let name: RunName = raw.name.parse().map_err(|e| value("name", &raw.name, format!("{e}")))?;
        let len = raw.task.len();
        rule(len > 0 && len <= MAX_TASK, "task", &raw.task, || {
            format!("must have 1 to {MAX_TASK} bytes")
        })?;
        rule((1..=MAX_ROUNDS).contains(&raw.rounds), "rounds", &raw.rounds, || {
            format!("must be 1 to {MAX_ROUNDS}")
        })?;
        let file = raw.model.display().to_string();
        rule(!file.is_empty(), "model", &file, || {
            "must name a safetensors file".to_owned()
        })?;
        let StrategySpec::FedAvg { learning_rate: rate } = raw.strategy;
        let positive = rate.is_finite() && rate > 0.0;
        rule(positive, "strategy.learning_rate", &rate, || {
            "must be finite and above 0".to_owned()
        })?;
        let RawCompression {
            mut uplink,
            mut downlink,
        } = raw.compression;
        uplink.memory = memory::of_updates(uplink.memory, raw.cohort.everyone())?;
        downlink.memory = memory::of_steps(downlink.memory)?;
        let plan = Self {
            name,
            task: raw.task,
            rounds: raw.rounds,
            seed: raw.seed.unwrap_or(0),
            model: base.join(raw.model),
            cohort: raw.cohort.checked()?,
            training: raw.train,
            strategy: raw.strategy,
            uplink,
            downlink,
            evaluate: raw.evaluate,
            limits: raw.limits.checked()?,
            text: PlanText(text.to_owned()),
        };
        Ok((plan, raw.seed))
    }
}

impl RawCohort {
    /// Whether each round asks every client of the federation, and waits for all of them until its deadline.
    fn everyone(&self) -> bool {
        self.clients.is_some_and(|clients| self.target >= clients)
    }

    fn checked(self) -> Result<Cohort, PlanError> {
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

impl RunPlan {
    /// Largest magnitude of a value in an update: `f32::MAX / (4 * rounds * max(1, learning rate))`.
    ///
    /// An average is no larger than the largest of its updates, so the steps of all rounds together stay within a quarter
    /// of the range of `f32`. With 50 rounds this is 1.7e36.
    pub fn largest_value(&self) -> f32 {
        let StrategySpec::FedAvg { learning_rate } = self.strategy;
        let steps = 4.0 * self.rounds as f64 * f64::from(learning_rate.max(1.0));
        (f64::from(f32::MAX) / steps) as f32
    }
}

fn rule(
    holds: bool,
    key: &'static str,
    found: &dyn std::fmt::Display,
    why: impl FnOnce() -> String,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(value(key, found, why())) }
}

fn value(key: &'static str, found: &dyn std::fmt::Display, rule: String) -> PlanError {
    PlanError::Value {
        key,
        value: found.to_string(),
        rule,
    }
}

fn one() -> f32 {
    1.0
}

fn yes() -> bool {
    true
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

fn fedavg() -> StrategySpec {
    StrategySpec::FedAvg { learning_rate: one() }
}
