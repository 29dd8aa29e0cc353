//! One experiment, from a run.toml.

use std::path::{Path, PathBuf};

use fl_compress::{Average, Layout, Spec};
use fl_proto::{Extra, MAX_TASK, RunName, TrainTable, Training};
use serde::{Deserialize, Serialize};

use crate::config::limits::Limits;
use crate::config::plan::cohort::{Cohort, RawCohort};
use crate::config::plan::error::{PlanError, rule, value};
use crate::config::plan::handout::{Handout, check_align, split_run};
use crate::config::plan::method::{Catalog, MethodSpec};
use crate::config::plan::model::{RawModel, Roles, file_or_table};
use crate::config::plan::rounded::RoundedVersions;
use crate::config::plan::{limits, memory};

pub const MAX_ROUNDS: u64 = 10_000_000;

/// One experiment. Every field is checked and in range. What is serialized is the plan's identity, in this order: every value
/// that can change the outcome. The file of initial weights is not among them, because the run's first record has their digest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunPlan {
    pub name: RunName,
    /// The task, which each client binds to a learner and data.
    pub task: String,
    /// At least 1.
    pub rounds: u64,
    /// Seed of all randomness: of run.toml, else of the initial weights, else 0.
    pub seed: u64,
    pub evaluate: bool,
    /// The mean of the last versions that clients evaluate beside the newest.
    pub average: Option<Average>,
    /// The accuracy, above 0 and at most 1, with which the run ends before its last round.
    pub stop_at: Option<f64>,
    pub cohort: Cohort,
    #[serde(rename = "train")]
    pub training: Training,
    /// `[train.extra]`, which clients pass to trainers.
    pub extra: Extra,
    /// From the aggregate of a round's updates to the model update.
    pub optimizer: MethodSpec,
    /// From the updates of a round to one.
    pub aggregator: MethodSpec,
    /// Compression of updates; exact if the table is missing. Its memory is never `Auto` or `Ef21`.
    pub uplink: Spec,
    /// Bytes of each client's updates in the run. `uplink` then has the budget of a round in which no bytes are left over.
    pub run_budget: Option<u64>,
    /// Compression of model updates; exact if the table is missing. Its memory is `None` or `ErrorFeedback`.
    pub downlink: Spec,
    /// Bounds on the weight of one client in a round.
    pub limits: Limits,
    /// Roles of the tensors of `model`.
    pub roles: Roles,
    /// The versions that are rounded, for short snapshots.
    pub rounded: Option<RoundedVersions>,
    /// File of the initial weights (safetensors).
    #[serde(skip)]
    pub model: PathBuf,
    /// Whether clients without the frozen tensors fetch them from the server.
    #[serde(skip)]
    pub serve_base: bool,
    /// What bounds the budgets that the server hands out with a round's task; `None` if it hands out none, and before
    /// [`RunPlan::with_layout`].
    #[serde(skip)]
    pub handout: Option<Handout>,
    /// The text of the run.toml, with the seed resolved.
    #[serde(skip)]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    task: String,
    rounds: u64,
    seed: Option<u64>,
    #[serde(deserialize_with = "file_or_table")]
    model: RawModel,
    #[serde(default = "yes")]
    evaluate: bool,
    average: Option<Average>,
    stop_at: Option<f64>,
    cohort: RawCohort,
    #[serde(default)]
    train: TrainTable,
    aggregator: Option<toml::Table>,
    optimizer: Option<toml::Table>,
    #[serde(default)]
    compression: RawCompression,
    #[serde(default)]
    limits: Limits,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCompression {
    uplink: Spec,
    downlink: Spec,
}

impl RunPlan {
    /// As `RunPlan::load`, with the methods of `catalog`.
    ///
    /// # Errors
    /// As [`RunPlan::from_toml_with`]; `Value` if there is no seed and the file of initial weights cannot be read.
    pub fn load_with(text: &str, base: &Path, catalog: &Catalog) -> Result<Self, PlanError> {
        let (mut plan, seed, key) = Self::parse(text, base, catalog)?;
        if seed.is_none() {
            let path = plan.model.display().to_string();
            let origin = crate::storage::weights::origin(&plan.model).map_err(|why| {
                value(
                    key,
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

    /// As `RunPlan::from_toml`, with the methods of `catalog`.
    ///
    /// # Errors
    /// `Syntax` with line and column, or `Value` with key, value and rule.
    pub fn from_toml_with(text: &str, base: &Path, catalog: &Catalog) -> Result<Self, PlanError> {
        Self::parse(text, base, catalog).map(|(plan, ..)| plan)
    }

    /// The plan for a model whose tensors that travel are those of `layout`: what it hands out depends on their size.
    pub fn with_layout(self, layout: &Layout) -> Self {
        let handout = Handout::of(&self.uplink, self.run_budget, layout);
        let is_handed_out = self.cohort.align || self.run_budget.is_some();
        Self {
            handout: handout.filter(|_| is_handed_out),
            ..self
        }
    }

    /// Whether the server measures the uploads of clients: to align budgets, or for a codec that chooses by their bandwidth.
    pub fn measures_uploads(&self) -> bool {
        self.cohort.align || self.uplink.wants_bandwidth()
    }

    /// The plan, its seed if the run.toml has one, and the key of its first weights.
    fn parse(text: &str, base: &Path, catalog: &Catalog) -> Result<(Self, Option<u64>, &'static str), PlanError> {
        let raw: Raw = toml::from_str(text).map_err(|e| PlanError::Syntax(e.to_string().trim_end().to_owned()))?;
        let name: RunName = raw.name.parse().map_err(|e| value("name", &raw.name, format!("{e}")))?;
        let len = raw.task.len();
        rule(
            len > 0 && len <= MAX_TASK,
            "task",
            &raw.task,
            format!("must have 1 to {MAX_TASK} bytes"),
        )?;
        rule(
            (1..=MAX_ROUNDS).contains(&raw.rounds),
            "rounds",
            &raw.rounds,
            format!("must be 1 to {MAX_ROUNDS}"),
        )?;
        if let Some(share) = raw.stop_at {
            rule(
                share > 0.0 && share <= 1.0,
                "stop_at",
                &share,
                "must be above 0 and at most 1: the share of examples that are classified correctly",
            )?;
            rule(raw.evaluate, "stop_at", &share, "needs `evaluate = true`")?;
        }
        if let Some(average) = raw.average.filter(|_| !raw.evaluate) {
            let why = "needs `evaluate = true`: clients average versions to evaluate them; `fl-server export --average` works \
                       without it";
            return Err(value("average", &average, why.to_owned()));
        }
        let mut model = raw.model;
        let key = model.key();
        let roles = model.checked()?;
        let RawCompression {
            mut uplink,
            mut downlink,
        } = raw.compression;
        uplink.memory = memory::of_updates(uplink.memory, raw.cohort.everyone())?;
        downlink.memory = memory::of_model_updates(downlink.memory)?;
        rule(
            !downlink.wants_squared_gradients(),
            "compression.downlink",
            &"form = \"gradients\"",
            "chooses by squared gradients, which model updates do not have; use form = \"scaled\"",
        )?;
        let aggregator = MethodSpec::read("aggregator", raw.aggregator.as_ref(), &catalog.aggregators, &uplink)?;
        let optimizer = MethodSpec::read("optimizer", raw.optimizer.as_ref(), &catalog.optimizers, &uplink)?;
        let cohort = raw.cohort.checked()?;
        let run_budget = split_run(&mut uplink, &downlink, raw.rounds)?;
        if cohort.align {
            check_align(&uplink, run_budget)?;
        }
        let plan = Self {
            name,
            task: raw.task,
            rounds: raw.rounds,
            seed: raw.seed.unwrap_or(0),
            model: base.join(model.weights),
            roles,
            serve_base: model.serve_base,
            rounded: model.snapshot,
            cohort,
            training: raw.train.training,
            extra: raw.train.extra,
            aggregator,
            optimizer,
            uplink,
            run_budget,
            downlink,
            evaluate: raw.evaluate,
            average: raw.average,
            stop_at: raw.stop_at,
            limits: limits::checked(raw.limits)?,
            handout: None,
            text: PlanText(text.to_owned()),
        };
        Ok((plan, raw.seed, key))
    }
}

impl RunPlan {
    /// Largest magnitude of a value in an update, such that the model updates of all rounds together stay within a quarter of
    /// the range of `f32`, by the bounds that aggregator and optimizer declare:
    /// `f32::MAX / (4 * rounds * max(1, gain))`, where `gain` is the product of the two gains; less if one of them needs it
    /// or has a constant part.
    ///
    /// With `fedavg` at learning rate 1, the mean and 50 rounds this is 1.7e36.
    pub fn largest_value(&self) -> f32 {
        let aggregator = self.aggregator.bound(self.rounds);
        let optimizer = self.optimizer.bound(self.rounds);
        let gain = (aggregator.gain * optimizer.gain).max(1.0);
        let largest = f64::from(f32::MAX) / (4.0 * self.rounds as f64 * gain);
        // The part of the result that does not depend on the inputs.
        let constant = aggregator.constant * optimizer.gain + optimizer.constant;
        let inputs = (optimizer.largest_input - aggregator.constant) / aggregator.gain;
        let inputs = aggregator.largest_input.min(inputs);
        (largest - constant / gain).min(inputs).max(0.0) as f32
    }
}

fn yes() -> bool {
    true
}
