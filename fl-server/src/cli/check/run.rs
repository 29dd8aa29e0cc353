//! What `check` says about a run.toml and its first weights.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use fl_compress::{Memory, SpaceSpec, snapshot};
use fl_report::size;
use serde::Serialize;

use crate::cli::check::tensors::{self, RoleSum, TensorLine};
use crate::cli::failure::Failure;
use crate::config::plan::RunPlan;
use crate::model::budgets::{self, WARNING};
use crate::model::space::first_weights;
use crate::storage::weights::FirstWeights;

#[derive(Debug, Serialize)]
pub(super) struct CheckedRun {
    file: PathBuf,
    run: String,
    task: String,
    rounds: u64,
    seed: u64,
    memory: Memories,
    model: Model,
    first_weights: Downloads,
    budgets: Vec<CheckedBudget>,
    /// Also in the text, among the lines that they belong to.
    warnings: Vec<String>,
    #[serde(skip)]
    lines: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Memories {
    uplink: &'static str,
    downlink: &'static str,
}

#[derive(Debug, Serialize)]
struct Model {
    file: PathBuf,
    /// Values that travel.
    parameters: usize,
    tensors: Vec<TensorLine>,
    roles: Vec<RoleSum>,
    base: Option<Base>,
}

#[derive(Debug, Serialize)]
struct Base {
    digest: String,
    bytes: u64,
    /// Whether clients without them fetch them from the server.
    served: bool,
}

/// What clients download before the first round.
#[derive(Debug, Serialize)]
struct Downloads {
    /// Seed and learner of `fl-client init`, as the file notes them.
    seed: Option<u64>,
    learner: Option<String>,
    /// Whether clients with that learner make the weights themselves.
    made_by_clients: bool,
    /// Bytes for each other client.
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct CheckedBudget {
    /// `uplink` or `downlink`.
    table: &'static str,
    /// Target size of a frame.
    bytes: u64,
    values: u64,
    /// Bytes of buffers and counters, at most.
    aside: u64,
    /// Bytes of headers and of tensors without a step or density to choose, at most.
    least: u64,
    /// Bits for each value of the other tensors.
    bits_left: f64,
    is_enough: bool,
    /// Bits for each value that are enough.
    enough_bits: f64,
}

impl CheckedRun {
    /// Checks the first weights and the compression of a plan.
    pub(super) fn new(file: &Path, plan: &RunPlan) -> Result<Self, Failure> {
        let name = file.display();
        let model = first_weights(plan);
        let model = model.map_err(|why| Failure::usage(anyhow!("{name}: {why}")))?;
        budgets::check(plan, &model.layout).map_err(|why| Failure::usage(anyhow!("{name}: {why}")))?;
        let estimates = budgets::estimates(plan, &model.layout);
        // A snapshot has every value uncompressed, and a few bytes for each tensor.
        let each = snapshot(&model.layout, &model.values, 0).map_or(0, |frame| frame.len() as u64);
        let mut lines = tensors::lines(&model);
        lines.extend(doubtful(&model));
        lines.extend(frozen(plan, &model));
        lines.extend(rounded(plan));
        lines.extend(blocks(plan));
        lines.push(downloads(plan, &model, each));
        let of_budgets = estimates.iter();
        lines.extend(of_budgets.flat_map(|(table, estimate)| budgets::lines_of(table, estimate, &model.layout)));
        lines.extend(budgets::handed_out(plan, &model.layout));
        let warnings = lines.iter().filter_map(|line| line.strip_prefix(WARNING));
        let seed = model.origin.seed;
        Ok(Self {
            file: file.to_owned(),
            run: plan.name.to_string(),
            task: plan.task.clone(),
            rounds: plan.rounds,
            seed: plan.seed,
            memory: Memories {
                uplink: plan.uplink.memory.name(),
                downlink: plan.downlink.memory.name(),
            },
            model: Model {
                file: plan.model.clone(),
                parameters: model.layout.len(),
                tensors: tensors::tensor_lines(&model),
                roles: tensors::role_sums(&model),
                base: model.base.as_ref().map(|base| Base {
                    digest: base.digest.to_string(),
                    bytes: base.bytes.len() as u64,
                    served: plan.serve_base,
                }),
            },
            first_weights: Downloads {
                seed,
                learner: model.origin.learner.clone(),
                made_by_clients: seed == Some(plan.seed),
                bytes: each,
            },
            budgets: estimates
                .iter()
                .map(|(table, estimate)| CheckedBudget {
                    table,
                    bytes: estimate.asked,
                    values: estimate.values,
                    aside: estimate.aside,
                    least: estimate.least,
                    bits_left: estimate.bits_left,
                    is_enough: !estimate.starves(),
                    enough_bits: estimate.enough_bits(),
                })
                .collect(),
            warnings: warnings.map(str::to_owned).collect(),
            lines,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{}: valid: run `{}`, task `{}`, {} rounds\n  memory of updates: {}; of model updates: {}\n  its model {} has {} \
             parameters\n",
            self.file.display(),
            self.run,
            self.task,
            self.rounds,
            self.memory.uplink,
            self.memory.downlink,
            self.model.file.display(),
            self.model.parameters
        );
        for line in &self.lines {
            let _ = writeln!(out, "  {line}");
        }
        out
    }
}

/// Warnings about the blocks of `train.space`.
fn blocks(plan: &RunPlan) -> Vec<String> {
    let blocks = plan.training.space.map_or(1, SpaceSpec::blocks);
    let mut lines = Vec::new();
    if u64::from(blocks) > plan.rounds {
        lines.push(format!(
            "WARNING: `train.space` has {blocks} blocks, of which a run of {} rounds trains {}; give no more blocks than rounds",
            plan.rounds, plan.rounds
        ));
    }
    let tables = [("uplink", &plan.uplink), ("downlink", &plan.downlink)];
    let kept = tables
        .iter()
        .filter(|(_, spec)| blocks > 1 && spec.memory != Memory::None);
    lines.extend(kept.map(|(table, spec)| {
        format!(
            "WARNING: `train.space` has {blocks} blocks, and what the memory \"{}\" of `compression.{table}` carries over is of \
             another block than the next round's; set `memory = \"none\"` there",
            spec.memory.name()
        )
    }));
    lines
}

/// A line about rounded versions, if there are any.
fn rounded(plan: &RunPlan) -> Option<String> {
    let rounded = plan.rounded?;
    if rounded.every > plan.rounds {
        return Some(format!(
            "WARNING: `model.snapshot.every` is {}, so that a run of {} rounds rounds no version; give a smaller number",
            rounded.every, plan.rounds
        ));
    }
    Some(match plan.downlink.memory {
        Memory::None => format!(
            "WARNING: `model.snapshot` rounds one version in {}, and `compression.downlink` has no residual: what rounding removes \
             is lost; set `memory = \"error-feedback\"` there",
            rounded.every
        ),
        _ => format!(
            "rounded versions: one in {}, to {} bits a value; late joiners download a snapshot of the last one",
            rounded.every,
            rounded.bits.bits()
        ),
    })
}

/// A line about trained tensors that may be statistics.
fn doubtful(model: &FirstWeights) -> Option<String> {
    (!model.doubtful.is_empty()).then(|| {
        format!(
            "{WARNING}trained tensors that may be statistics: {}; compressed, a variance may become negative: name such tensors in \
             `model.buffer`, or in `model.local` where each client keeps its own",
            model.doubtful
        )
    })
}

/// A line about where clients get the frozen tensors from, if there are any or run.toml says that there are.
fn frozen(plan: &RunPlan, model: &FirstWeights) -> Option<String> {
    match (&model.base, plan.serve_base) {
        (Some(base), true) => {
            let each = base.bytes.len() as u64;
            let target = plan.cohort.target as u64;
            Some(format!(
                "frozen tensors: clients without them download {} each, {} for {target} clients, once and beside the first weights",
                size(each),
                size(each * target)
            ))
        }
        (Some(_), false) if plan.training.space.is_some() => Some(
            "frozen tensors: w0 of `train.space`, which clients with the learner draw by the seed; if their digest is another, each \
             needs a file of them in `models` of its client.toml; or set `serve_base = true` in [model]"
                .to_owned(),
        ),
        (Some(_), false) => Some(
            "frozen tensors: each client needs a file of them in `models` of its client.toml, or a trainer that loads the same \
             ones; or set `serve_base = true` in [model]"
                .to_owned(),
        ),
        (None, true) => Some(
            "WARNING: `serve_base = true` has no effect, because no tensor is frozen; name some in `model.frozen`, or remove the \
             key"
                .to_owned(),
        ),
        (None, false) => None,
    }
}

/// A line about the download of the initial weights. A client generates them itself if its learner gives the same weights from
/// the run's seed. `each`: bytes for one client.
fn downloads(plan: &RunPlan, model: &FirstWeights, each: u64) -> String {
    let seed = plan.seed;
    let target = plan.cohort.target as u64;
    let cost = format!("{} each, {} for {target} clients", size(each), size(each * target));
    let nothing = model.base.as_ref().map_or("nothing", |_| "nothing of them");
    let origin = &model.origin;
    let learner = match &origin.learner {
        Some(learner) => format!("learner `{learner}`"),
        None => "the learner that made them".to_owned(),
    };
    match origin.seed {
        Some(made) if made == seed => format!(
            "first weights: clients with {learner} make them from seed {seed} and download {nothing}; others download {cost}"
        ),
        Some(made) => format!(
            "WARNING: the first weights were made from seed {made}, and the run has seed {seed}: every client downloads \
             {cost}; remove `seed`, or set it to {made}"
        ),
        None if model.base.is_some() => format!(
            "first weights: every client downloads {cost}, because a trainer does not look for its own in a file with frozen tensors"
        ),
        None => format!(
            "first weights: clients whose learner starts from exactly these weights download nothing; others download {cost}"
        ),
    }
}
