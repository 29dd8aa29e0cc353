//! One experiment, from a run.toml.

use std::path::{Path, PathBuf};

use fl_compress::Spec;
use fl_proto::{RunName, Training};
use serde::Deserialize;

use crate::config::limits::Limits;
use crate::config::plan::cohort::{Cohort, RawCohort};
use crate::config::plan::error::{PlanError, rule, value};
use crate::config::plan::strategy::StrategySpec;
use crate::config::plan::{limits, memory};

/// Most rounds of a run.
pub const MAX_ROUNDS: u64 = 10_000_000;
/// Longest task name in bytes.
const MAX_TASK: usize = 64;

/// One experiment. Every field is checked and in range.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlan {
    pub name: RunName,
    /// The task, which each client binds to a learner and data.
    pub task: String,
    /// Rounds, at least 1.
    pub rounds: u64,
    /// Seed of all randomness: of run.toml, else of the initial weights, else 0.
    pub seed: u64,
    /// File of the initial weights (safetensors).
    pub model: PathBuf,
    pub cohort: Cohort,
    pub training: Training,
    pub strategy: StrategySpec,
    /// Compression of updates; exact if the table is missing. Its memory is never `Auto` or `Ef21`.
    pub uplink: Spec,
    /// Compression of model updates; exact if the table is missing. Its memory is `None` or `ErrorFeedback`.
    pub downlink: Spec,
    /// Whether clients evaluate each version.
    pub evaluate: bool,
    /// Bounds on the weight of one client in a round.
    pub limits: Limits,
    /// The text of the run.toml, with the seed resolved.
    pub text: PlanText,
}

/// The text of a run.toml. All texts are equal, so that plans are compared by their values.
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
    #[serde(default)]
    strategy: StrategySpec,
    #[serde(default)]
    compression: RawCompression,
    #[serde(default)]
    limits: limits::Raw,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCompression {
    uplink: Spec,
    downlink: Spec,
}

impl RunPlan {
    /// Reads a run.toml; if it has no seed, reads the seed in the notes of the initial weights. Paths are relative to `base`.
    ///
    /// # Errors
    /// As [`RunPlan::from_toml`]; `Value` if there is no seed and the file of initial weights cannot be read.
    pub fn load(text: &str, base: &Path) -> Result<Self, PlanError> {
        let (mut plan, seed) = Self::parse(text, base)?;
        if seed.is_none() {
            let path = plan.model.display().to_string();
            let origin = crate::storage::weights::origin(&plan.model).map_err(|why| {
                value(
                    "model",
                    &path,
                    format!("{why}; or set `seed`, which the server otherwise reads from this file"),
                )
            })?;
            plan.seed = origin.seed.unwrap_or(plan.seed);
            // The text is stored with the run and must give the same plan without the file of initial weights.
            plan.text = PlanText(format!("seed = {} # of its first weights\n{text}", plan.seed));
        }
        Ok(plan)
    }

    /// Reads a run.toml and no other file; without a seed, the seed is 0. Paths are relative to `base`.
    ///
    /// # Errors
    /// `Syntax` with line and column, or `Value` with key, value and rule.
    pub fn from_toml(text: &str, base: &Path) -> Result<Self, PlanError> {
        Self::parse(text, base).map(|(plan, _)| plan)
    }

    /// The plan, and its seed if the run.toml has one.
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

impl RunPlan {
    /// Largest magnitude of a value in an update: `f32::MAX / (4 * rounds * max(1, learning rate))`.
    ///
    /// An average is not larger than the largest of its updates, so the model updates of all rounds together stay within a
    /// quarter of the range of `f32`. With 50 rounds this is 1.7e36.
    pub fn largest_value(&self) -> f32 {
        let StrategySpec::FedAvg { learning_rate } = self.strategy;
        let steps = 4.0 * self.rounds as f64 * f64::from(learning_rate.max(1.0));
        (f64::from(f32::MAX) / steps) as f32
    }
}

fn yes() -> bool {
    true
}
