//! Reads the runs of a store. Read-only; needs no server.

use std::collections::BTreeMap;

use crate::model::persistence_error::PersistenceError;
use crate::model::run_metadata::{PLAN, RunMetadata, stored_plan};
use crate::model::stored_frames::ModelFrames;

use fl_compress::{Digest, Layout, Spec};
use fl_proto::RunName;
use fl_report::{FrameBudget, Settings};
use serde::{Deserialize, Serialize};

use crate::accounting::ledger::{Ledger, stored_rows, stored_tail};
use crate::model::restore::Fallback;
use crate::reporting::history::History;
use crate::reporting::moment::Moment;
use crate::reporting::report::{Report, ReportBuilder, RunInfo, state};
use crate::state_machine::{ImpossibleRecord, Versions};
use crate::storage::store::{RunStore, Store, StoreError};
use crate::telemetry::event::ModelEvaluation;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    /// The question names something that does not exist.
    #[error("{0}")]
    NotThere(String),
    #[error("{0}")]
    Corrupt(String),
    #[error(transparent)]
    Store(StoreError),
}

impl From<PersistenceError> for InspectError {
    fn from(error: PersistenceError) -> Self {
        match error {
            PersistenceError::Store(error) => error.into(),
            error => Self::Corrupt(error.to_string()),
        }
    }
}

impl From<StoreError> for InspectError {
    fn from(error: StoreError) -> Self {
        if error.is_corruption() {
            Self::Corrupt(error.to_string())
        } else {
            Self::Store(error)
        }
    }
}

impl From<ImpossibleRecord> for InspectError {
    fn from(error: ImpossibleRecord) -> Self {
        Self::Corrupt(error.to_string())
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunStatus {
    pub(crate) run: String,
    pub(crate) state: String,
    pub(crate) planned: u64,
    pub(crate) closed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) training: Option<RoundTraining>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) evaluation: Option<ModelEvaluation>,
    /// Damage that the server has found and worked around, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) damage: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoundTraining {
    pub(crate) round: u64,
    pub(crate) loss: f64,
    pub(crate) metrics: BTreeMap<String, f64>,
}

impl RoundTraining {
    fn newest(history: &History) -> Option<Self> {
        let (round, sums) = history.rounds.iter().rev().find(|(_, sums)| sums.closed.is_some())?;
        Some(Self {
            round: *round,
            loss: sums.mean_loss()?,
            metrics: history.trained(*round),
        })
    }
}

/// The status of the runs of a store. `served`: the run that the server serves, at this moment.
pub(crate) fn statuses(store: &Store, served: Option<&ServedRun>) -> Result<Vec<RunStatus>, InspectError> {
    let mut out = Vec::new();
    for name in begun(store)? {
        let run = store.run(&name)?;
        let planned = RunMetadata::load(&run)?.map_or(0, |facts| facts.rounds);
        let served = served.filter(|served| served.run == name.as_str());
        let records = served.map_or(usize::MAX, |served| served.moment.records as usize);
        let mut history = History::default();
        let mut versions = Versions::default();
        for record in run.records().take(records) {
            let record = record?;
            history.add(&record);
            versions.add(&record);
        }
        out.push(RunStatus {
            run: name.to_string(),
            state: state(&history, &versions),
            planned,
            closed: versions.depth(versions.newest()),
            training: RoundTraining::newest(&history),
            evaluation: history
                .evaluations
                .keys()
                .rev()
                .find_map(|version| history.evaluated(*version)),
            damage: Fallback::load(&run)?.iter().map(ToString::to_string).collect(),
        });
    }
    Ok(out)
}

/// The report of a run. `moment`: the served run; if it is the one asked for, the report is of this moment.
pub(crate) fn report(store: &Store, run: Option<&str>, moment: Option<&ServedRun>) -> Result<Report, InspectError> {
    let (run, facts) = begun_run(store, run)?;
    let moment = moment.filter(|served| served.run == run.name().as_str());
    let moment = moment.map(|served| &served.moment);
    let (ledger, filling) = std::thread::scope(|scope| {
        let ledger = scope.spawn(|| ledger(&run, moment));
        let mut filling = ReportBuilder::default();
        for record in run
            .records()
            .take(moment.map_or(usize::MAX, |moment| moment.records as usize))
        {
            filling.add(&record?);
        }
        let ledger = ledger.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok::<_, StoreError>((ledger, filling))
    })?;
    let layout = facts.layout()?;
    let plan = filling.begun.map(|begun| stored_plan(&run, begun)).transpose()?;
    let plan = match plan {
        Some(Ok(plan)) => serde_json::from_slice(&plan.to_bytes()),
        // Its methods may be registered in another program.
        Some(Err(_)) | None => serde_json::to_value(&facts.compression),
    };
    let plan = plan.map_err(|e| InspectError::Corrupt(e.to_string()))?;
    let subject = RunInfo {
        run: run.name().to_string(),
        parameters: facts.model_values(&layout)?,
        travelling: layout.len(),
        tensors: layout.tensors().iter().map(|tensor| tensor.name.clone()).collect(),
        settings: Settings {
            words: fl_report::words(facts.learner.as_deref(), &plan),
            plan,
            run_toml: String::from_utf8_lossy(&run.meta(PLAN)?.unwrap_or_default()).into_owned(),
            budget_up: frame_budget(&facts.compression.uplink, &layout),
            budget_down: frame_budget(&facts.compression.downlink, &layout),
        },
        task: facts.task,
        instance: facts.instance,
        planned: facts.rounds,
    };
    Ok(filling.finish(&subject, ledger, moment))
}

fn frame_budget(codec: &Spec, layout: &Layout) -> Option<FrameBudget> {
    let estimate = codec.budget_estimate(layout)?;
    Some(FrameBudget {
        bytes: estimate.asked.max(estimate.least),
        error: codec.budget?.error().map(|error| error.to_string()),
    })
}

#[derive(Debug, Clone)]
pub(crate) struct ServedRun {
    pub(crate) run: String,
    pub(crate) moment: Moment,
}

/// A run's ledger: its rows, and the bytes since the last row, from the running server or, without one, from the
/// ledger's tail.
fn ledger(run: &RunStore, moment: Option<&Moment>) -> Result<Ledger, StoreError> {
    let mut ledger = Ledger::default();
    let len = moment.map_or(usize::MAX, |moment| moment.rows as usize);
    for row in stored_rows(run).take(len) {
        ledger.add(row?);
    }
    let rest = match moment {
        Some(moment) => moment.pending.rows(moment.round),
        None => stored_tail(run)?,
    };
    rest.into_iter().for_each(|row| ledger.add(row));
    Ok(ledger)
}

pub(crate) fn parts(store: &Store, run: Option<&str>, version: Option<u64>) -> Result<ModelFrames, InspectError> {
    let (run, facts) = begun_run(store, run)?;
    let name = run.name();
    let mut versions = Versions::default();
    for record in run.records() {
        versions.add(&record?);
    }
    let newest = versions.newest();
    let version = version.unwrap_or(newest);
    if version > newest {
        let text = format!("run {name} has no version {version}; the newest is {newest}");
        return Err(InspectError::NotThere(text));
    }
    let Some(steps) = versions.steps(version) else {
        let text = format!("run {name}: a round before version {version} is missing");
        return Err(InspectError::Corrupt(text));
    };
    let steps = steps.iter().map(Digest::to_string);
    let model = versions.model(version).map(|model| model.to_string());
    Ok(ModelFrames {
        run: name.to_string(),
        version,
        model: model.unwrap_or_default(),
        layout: facts.layout,
        aside: facts.aside,
        base: facts.base,
        space: facts.space,
        frames: [facts.initial].into_iter().chain(steps).collect(),
    })
}

/// The run of this name. Without a name, the only run.
pub(crate) fn chosen(store: &Store, run: Option<&str>) -> Result<RunStore, InspectError> {
    Ok(store.run(&choose(&begun(store)?, run)?)?)
}

pub(crate) fn begun_run(store: &Store, run: Option<&str>) -> Result<(RunStore, RunMetadata), InspectError> {
    let run = chosen(store, run)?;
    match RunMetadata::load(&run)? {
        Some(facts) => Ok((run, facts)),
        None => Err(InspectError::NotThere(format!("run {} has not begun yet", run.name()))),
    }
}

/// The runs that have begun. A run whose first weights were refused has stored only its name.
fn begun(store: &Store) -> Result<Vec<RunName>, InspectError> {
    let mut out = Vec::new();
    for name in store.runs()? {
        let run = store.run(&name)?;
        if !run.is_empty() || RunMetadata::load(&run)?.is_some() {
            out.push(name);
        }
    }
    Ok(out)
}

fn choose(runs: &[RunName], asked: Option<&str>) -> Result<RunName, InspectError> {
    let known = runs.iter().map(RunName::as_str).collect::<Vec<_>>().join(", ");
    let found = match (asked, runs) {
        (Some(asked), runs) => runs.iter().find(|run| run.as_str() == asked),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    found.cloned().ok_or_else(|| {
        InspectError::NotThere(match asked {
            Some(asked) => format!("there is no run `{asked}`; there is: {known}"),
            None if runs.is_empty() => "there is no run yet".to_owned(),
            None => format!("name one of the runs: {known}"),
        })
    })
}
