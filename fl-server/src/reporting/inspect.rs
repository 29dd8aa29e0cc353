//! Reads what a store holds of its runs. Changes nothing, and needs no server.

use std::io::Read as _;
use std::path::Path;

use fl_compress::{Digest, Frame, FrameKind, Layout};
use fl_proto::RunName;
use serde::{Deserialize, Serialize};

use crate::accounting::ledger::{Ledger, stored_rows, stored_tail};
use crate::config::plan::RunPlan;
use crate::model::restore::Fallback;
use crate::reporting::history::History;
use crate::reporting::moment::Moment;
use crate::reporting::report::{Report, ReportBuilder, RunInfo, state};
use crate::reporting::status::RunStatus;
use crate::reporting::what_if::Compression;
use crate::storage::blobs;
use crate::storage::disk::open_file;
use crate::storage::store::{RunStore, Store, StoreError};

/// What is asked for cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    /// The question names something that is not there.
    #[error("{0}")]
    NotThere(String),
    /// What is stored is not what was stored.
    #[error("{0}")]
    Corrupt(String),
    /// The store's.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for InspectError {
    fn from(error: StoreError) -> Self {
        match error.is_corruption() {
            true => Self::Corrupt(error.to_string()),
            false => Self::Store(error),
        }
    }
}

/// RunMetadata of a run that its records do not hold, kept beside them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunMetadata {
    pub(crate) task: String,
    pub(crate) rounds: u64,
    /// Names and shapes of the model's tensors.
    pub(crate) layout: Vec<(String, Vec<usize>)>,
    /// Digest of the snapshot frame of version 0.
    pub(crate) initial: String,
    /// Drawn when the run was begun, as hexadecimal: tells it from others of its name.
    pub(crate) instance: String,
    /// How it compresses; not there if an older program began it.
    #[serde(default)]
    pub(crate) compression: Option<Compression>,
}

/// The named value of the facts.
const FACTS: &str = "facts";

/// The named value of the run.toml that the run was begun with.
pub(crate) const PLAN: &str = "plan";

/// The plan of a run, as stored.
///
/// # Errors
/// A text that says why there is none: an older program began the run, or this one reads another plan in it.
pub(crate) fn stored_plan(run: &RunStore, begun: Digest) -> Result<Result<RunPlan, String>, InspectError> {
    let Some(bytes) = run.meta(PLAN)? else {
        let why = "an older program began the run, and its plan is not stored; give its run.toml with --plan";
        return Ok(Err(why.to_owned()));
    };
    let text = String::from_utf8(bytes);
    let plan = text.map_err(|e| e.to_string());
    let plan = plan.and_then(|text| RunPlan::from_toml(&text, Path::new("")).map_err(|e| e.to_string()));
    Ok(match plan {
        Ok(plan) if plan.digest() == begun => Ok(plan),
        Ok(_) => {
            Err("this program reads another plan in the stored run.toml; use the program that wrote it".to_owned())
        }
        Err(why) => Err(format!("the stored run.toml cannot be read: {why}")),
    })
}

impl RunMetadata {
    pub(crate) fn new(plan: &RunPlan, layout: &Layout, initial: Digest, instance: Digest) -> Self {
        let layout = layout
            .tensors()
            .iter()
            .map(|t| (t.name.clone(), t.shape.clone()))
            .collect();
        Self {
            task: plan.task.clone(),
            rounds: plan.rounds,
            layout,
            initial: initial.to_string(),
            instance: instance.to_string(),
            compression: Some(Compression {
                uplink: plan.uplink.clone(),
                downlink: plan.downlink.clone(),
            }),
        }
    }

    pub(crate) fn store(&self, run: &RunStore) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(self).expect("strings and numbers are always JSON");
        run.set_meta(FACTS, &bytes)
    }

    /// The facts of a run; `None` before its first start was complete.
    pub(crate) fn load(run: &RunStore) -> Result<Option<Self>, InspectError> {
        let Some(bytes) = run.meta(FACTS)? else { return Ok(None) };
        let parsed = serde_json::from_slice(&bytes);
        parsed
            .map(Some)
            .map_err(|e| InspectError::Corrupt(format!("facts of run {}: {e}", run.name())))
    }

    pub(crate) fn layout(&self) -> Result<Layout, InspectError> {
        Layout::new(self.layout.iter().cloned()).map_err(|e| InspectError::Corrupt(format!("stored layout: {e}")))
    }
}

/// The frames whose sum is a model: one snapshot, then steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Parts {
    pub(crate) run: String,
    pub(crate) version: u64,
    /// Digest of the model.
    pub(crate) model: String,
    pub(crate) layout: Vec<(String, Vec<usize>)>,
    /// Digests of the frames, in order.
    pub(crate) frames: Vec<String>,
}

/// The runs of a store. `served`: the one that its server serves, at this moment.
pub(crate) fn statuses(store: &Store, served: Option<&Served>) -> Result<Vec<RunStatus>, InspectError> {
    let mut out = Vec::new();
    for name in begun(store)? {
        let run = store.run(&name)?;
        let planned = RunMetadata::load(&run)?.map_or(0, |facts| facts.rounds);
        let served = served.filter(|served| served.run == name.as_str());
        let history = history_of(&run, served.map_or(usize::MAX, |served| served.moment.records as usize))?;
        let closed = history.steps(history.newest()).map_or(0, |steps| steps.len() as u64);
        out.push(RunStatus {
            run: name.to_string(),
            state: state(&history),
            planned,
            closed,
            damage: Fallback::load(&run)?.iter().map(ToString::to_string).collect(),
        });
    }
    Ok(out)
}

/// The report of a run. `moment`: the run that is served and its books, of which the report is made if it is this one.
pub(crate) fn report(store: &Store, run: Option<&str>, moment: Option<&Served>) -> Result<Report, InspectError> {
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
    let subject = RunInfo {
        run: run.name().to_string(),
        parameters: layout.len(),
        tensors: layout.tensors().iter().map(|tensor| tensor.name.clone()).collect(),
        task: facts.task,
        instance: facts.instance,
        planned: facts.rounds,
    };
    Ok(filling.finish(&subject, ledger, moment))
}

/// The run that a server serves, and its books at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) run: String,
    pub(crate) moment: Moment,
}

/// A run's ledger, added up: its rows, and what has passed since the last of them, as the running server has it now or as
/// it was kept last.
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

pub(crate) fn parts(store: &Store, run: Option<&str>, version: Option<u64>) -> Result<Parts, InspectError> {
    let (run, facts) = begun_run(store, run)?;
    let (name, history) = (run.name(), history(&run)?);
    let newest = history.newest();
    let version = version.unwrap_or(newest);
    if version > newest {
        let text = format!("run {} has no version {version}; the newest is {newest}", name);
        return Err(InspectError::NotThere(text));
    }
    let gap = || InspectError::Corrupt(format!("run {name}: a round before version {version} is missing"));
    let steps = history.steps(version).ok_or_else(gap)?;
    let steps = steps.iter().map(Digest::to_string);
    let frames = [facts.initial.clone()].into_iter().chain(steps).collect();
    let model = history
        .model(version)
        .map(|model| model.to_string())
        .unwrap_or_default();
    Ok(Parts {
        run: name.to_string(),
        version,
        model,
        layout: facts.layout,
        frames,
    })
}

/// The model that `parts` add up to, its digest checked. Blobs are read below `data`, whoever writes there.
pub(crate) fn assemble(data: &Path, parts: &Parts) -> Result<(Layout, Vec<f32>), InspectError> {
    let corrupt = |text: String| InspectError::Corrupt(text);
    let layout = Layout::new(parts.layout.iter().cloned()).map_err(|e| corrupt(format!("stored layout: {e}")))?;
    let run = parts.run.parse().map_err(|e| corrupt(format!("{e}")))?;
    let mut model = vec![0.0; layout.len()];
    for name in &parts.frames {
        let digest: Digest = name.parse().map_err(|e| corrupt(format!("{e}")))?;
        let path = blobs::find(data, &run, &digest);
        let mut bytes = Vec::new();
        open_file(&path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|e| corrupt(format!("blob {}: {e}", path.display())))?;
        if Digest::of(&bytes) != digest {
            return Err(corrupt(format!(
                "blob {} is damaged: its bytes have another digest",
                path.display()
            )));
        }
        let frame = Frame::parse(&bytes, &layout).map_err(|e| corrupt(format!("{}: {e}", path.display())))?;
        let added = match frame.header().kind {
            FrameKind::Snapshot => frame.decode(&mut model),
            _ => frame.accumulate(1.0, &mut model),
        };
        added.map_err(|e| corrupt(format!("{}: {e}", path.display())))?;
    }
    let found = Digest::of_f32(&model).to_string();
    if found != parts.model {
        return Err(corrupt(format!(
            "version {} has digest {found}, its record says {}",
            parts.version, parts.model
        )));
    }
    Ok((layout, model))
}

/// The sums of a run's records.
pub(crate) fn history(run: &RunStore) -> Result<History, StoreError> {
    history_of(run, usize::MAX)
}

/// The sums of a run's first records.
fn history_of(run: &RunStore, records: usize) -> Result<History, StoreError> {
    let mut history = History::default();
    for record in run.records().take(records) {
        history.add(&record?);
    }
    Ok(history)
}

/// The run of this name; without a name, the only one.
pub(crate) fn chosen(store: &Store, run: Option<&str>) -> Result<RunStore, InspectError> {
    Ok(store.run(&choose(&begun(store)?, run)?)?)
}

/// The run that is asked for, and its facts.
pub(crate) fn begun_run(store: &Store, run: Option<&str>) -> Result<(RunStore, RunMetadata), InspectError> {
    let run = chosen(store, run)?;
    let name = run.name().clone();
    let facts = RunMetadata::load(&run)?;
    let facts = facts.ok_or_else(|| InspectError::NotThere(format!("run {name} has not begun yet")))?;
    Ok((run, facts))
}

/// The runs that have begun: one whose first weights were refused has left no more than its name.
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
    let known = || runs.iter().map(RunName::as_str).collect::<Vec<_>>().join(", ");
    match (asked, runs) {
        (Some(asked), runs) => runs
            .iter()
            .find(|run| run.as_str() == asked)
            .cloned()
            .ok_or_else(|| InspectError::NotThere(format!("there is no run `{asked}`; there is: {}", known()))),
        (None, [only]) => Ok(only.clone()),
        (None, []) => Err(InspectError::NotThere("there is no run yet".to_owned())),
        (None, _) => Err(InspectError::NotThere(format!("name one of the runs: {}", known()))),
    }
}
