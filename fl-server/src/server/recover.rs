//! Recovers a run: begins it, or replays its records and computes its model again from the last checkpoint.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fl_compress::{BudgetEstimate, Digest, Layout};
use fl_proto::FramePart;

use crate::accounting::hash_chain::{HashChain, entries};
use crate::accounting::ledger::{Row, stored_rows, stored_tail};
use crate::accounting::sample::RowSums;
use crate::clock::{Clock, Millis, Wall};
use crate::config::plan::RunPlan;
use crate::config::server::Tuning;
use crate::coordinator::model_task::ModelTask;
use crate::error::ServeError;
use crate::model::GlobalModel;
use crate::model::decoded_updates::DecodedUpdates;
use crate::model::kept_snapshots::KeptSnapshots;
use crate::model::model_store::{ModelStore, UPDATES_FROM, put_checkpoint, put_snapshot};
use crate::model::persistence_error::PersistenceError;
use crate::model::restore::{RestoredModel, restore};
use crate::model::run_metadata::{Aside, PLAN, RunMetadata};
use crate::model::space::first_weights;
use crate::reporting::history::History;
use crate::state_machine::{Input, Presence, State, decide};
use crate::storage::blobs::Blobs;
use crate::storage::disk::{Disk, Fault};
use crate::storage::record::Record;
use crate::storage::store::{RunStore, Store};

#[derive(Debug)]
pub(crate) struct RecoveredRun {
    pub(crate) state: State,
    pub(crate) store: Store,
    pub(crate) run: RunStore,
    pub(crate) blobs: Blobs,
    pub(crate) model_task: ModelTask,
    /// The updates of the open round, decoded.
    pub(crate) updates: Arc<DecodedUpdates>,
    pub(crate) chain: HashChain,
    pub(crate) history: History,
    pub(crate) layout: Arc<Layout>,
    pub(crate) aside: Aside,
    pub(crate) instance: Digest,
    /// Damage that was worked around, as a sentence.
    pub(crate) damage: Option<String>,
    /// Sums of the run's ledger.
    pub(crate) booked: RowSums,
    pub(crate) clock: Clock,
}

/// Opens `data` and recovers the run of `plan`. `instance`: identifies the run among those of its name if it begins
/// now. Blocks.
///
/// # Errors
/// `Model` with `OtherPlan` if the folder has this run with another plan; `Weights` or `FirstModel` if the first
/// weights cannot be used; those of store, blobs and records.
pub(crate) fn start(
    data: &Path,
    plan: &RunPlan,
    tuning: Tuning,
    fault: Option<Arc<Fault>>,
    instance: Digest,
    wall: Wall,
) -> Result<RecoveredRun, ServeError> {
    let disk = Disk::new(fault).patient(true);
    disk.create_dir(data)?;
    let store = Store::open(data, disk.clone())?;
    disk.make_private(data)?;
    let run = store.run(&plan.name)?;
    let blobs = Blobs::open(data, &plan.name, disk)?;
    let mut replay = Replay::of(&run)?;
    let clock = Clock::new(wall, replay.last);
    let mut model = if replay.state.is_started() {
        resume(plan, &run, &blobs, &replay.state, clock.now(), tuning.keep_updates)?
    } else {
        let model = begin(plan, &run, &blobs, instance)?;
        let first = Record::Started {
            plan: plan.digest(),
            model: model.global.digest(),
            at: clock.now(),
        };
        replay.append(&run, &[first])?;
        model
    };
    replay.take_tail(&run)?;
    let layout = Arc::clone(model.global.layout());
    if run.len() > 1 {
        let decision = decide(&replay.state, plan, clock.now(), &Presence::default(), Input::Resume);
        replay.append(&run, &decision.records)?;
        tracing::info!(run = %plan.name, version = replay.state.version(), "run continued");
    } else {
        tracing::info!(run = %plan.name, parameters = layout.len(), "run begun");
    }
    for (table, spec) in [("uplink", &plan.uplink), ("downlink", &plan.downlink)] {
        if let Some(estimate) = spec.budget_estimate(&layout).filter(BudgetEstimate::starves) {
            tracing::warn!(
                table,
                budget = %estimate.budget,
                bytes = estimate.asked,
                least = estimate.least,
                "the budget leaves next to nothing for the values of a frame"
            );
        }
    }
    let keeper = ModelStore {
        blobs: blobs.clone(),
        run: run.clone(),
        initial: digest(&model.facts.initial)?,
        checkpoint_every: tuning.checkpoint_every,
        keep_updates: tuning.keep_updates,
    };
    model
        .global
        .set_threads(std::thread::available_parallelism().map_or(1, usize::from));
    Ok(RecoveredRun {
        state: replay.state,
        store,
        run,
        blobs,
        updates: Arc::clone(model.global.decoded()),
        model_task: ModelTask::new(model.global, model.snapshots, keeper, model.used),
        chain: replay.chain,
        history: replay.history,
        layout,
        aside: model.facts.aside()?,
        instance: digest(&model.facts.instance)?,
        damage: model.damage,
        booked: replay.booked,
        clock,
    })
}

/// What follows from the records and rows of a run.
struct Replay {
    state: State,
    history: History,
    chain: HashChain,
    booked: RowSums,
    /// The time of the last record.
    last: Millis,
}

impl Replay {
    fn of(run: &RunStore) -> Result<Self, ServeError> {
        let mut state = State::new();
        let mut history = History::default();
        let mut booked = RowSums::default();
        let mut last = 0;
        let mut applied = Ok(());
        let records = run.records().map(|record| record.map_err(ServeError::from));
        let records = records.inspect(|record| {
            if let (Ok(record), Ok(())) = (record, &applied) {
                last = record.at().map_or(last, |at| at.max(last));
                history.add(record);
                applied = state.apply(record);
            }
        });
        let rows = stored_rows(run).map(|row| row.map_err(ServeError::from));
        let rows = rows.inspect(|row| {
            if let Ok(row) = row {
                booked.add(row);
            }
        });
        let (_, chain) = entries(records, rows)?;
        applied?;
        Ok(Self {
            state,
            history,
            chain,
            booked,
            last,
        })
    }

    fn append(&mut self, run: &RunStore, records: &[Record]) -> Result<(), ServeError> {
        run.append(records, &[])?;
        for record in records {
            self.chain.record(record);
            self.history.add(record);
            self.state.apply(record)?;
        }
        Ok(())
    }

    /// Appends the bytes after the last row that a killed server had written to the tail.
    fn take_tail(&mut self, run: &RunStore) -> Result<(), ServeError> {
        let tail = stored_tail(run)?;
        if tail.is_empty() {
            return Ok(());
        }
        run.append(&[], &tail.iter().map(Row::to_bytes).collect::<Vec<_>>())?;
        for row in &tail {
            self.chain.row(row);
            self.booked.add(row);
        }
        Ok(())
    }
}

/// The model of a run that begins or goes on.
struct RunModel {
    global: GlobalModel,
    snapshots: KeptSnapshots,
    facts: RunMetadata,
    damage: Option<String>,
    /// Updates of closed rounds to be removed later, with their rounds.
    used: Vec<(u64, Digest)>,
}

/// Computes the model again from the last checkpoint.
fn resume(
    plan: &RunPlan,
    run: &RunStore,
    blobs: &Blobs,
    state: &State,
    now: Millis,
    keep_updates: bool,
) -> Result<RunModel, ServeError> {
    let RestoredModel {
        global,
        facts,
        fallback,
    } = restore(plan, run, blobs, state, now)?;
    if run.meta(PLAN)?.is_none() {
        run.set_meta(PLAN, plan.text.0.as_bytes())?;
    }
    // Only after recovery succeeded: the blobs that a damaged store does not name may be all that is left.
    let used = sweep(run, blobs, keep_updates, state.version())?;
    let mut snapshots = KeptSnapshots::load(run)?;
    snapshots.retain_stored(blobs)?;
    let initial = digest(&facts.initial)?;
    if let (true, Some(len)) = (snapshots.is_empty(), blobs.len(&initial)?) {
        // Clients may be fetching the first one; the list is stored with the second.
        snapshots.add(FramePart {
            version: 0,
            len,
            digest: initial,
        });
    }
    Ok(RunModel {
        global,
        snapshots,
        facts,
        damage: fallback.map(|fallback| fallback.to_string()),
        used,
    })
}

/// Reads the first weights and stores them as a checkpoint, and as the snapshot that clients fetch.
fn begin(plan: &RunPlan, run: &RunStore, blobs: &Blobs, instance: Digest) -> Result<RunModel, ServeError> {
    let first = first_weights(plan)?;
    if let Some(seed) = first.origin.seed.filter(|&seed| seed != plan.seed) {
        tracing::warn!(
            run_seed = plan.seed,
            weights_seed = seed,
            "run.toml and its model have different seeds: every client downloads the first weights"
        );
    }
    let global = GlobalModel::initial(Arc::new(first.layout), first.values, plan).map_err(ServeError::FirstModel)?;
    let snapshot = put_snapshot(&global, blobs)?;
    let mut aside = Aside {
        tensors: first.aside,
        base: None,
    };
    if let Some(base) = &first.base {
        aside.base = Some(blobs.put(&base.bytes)?);
    }
    let facts = RunMetadata {
        learner: first.origin.learner,
        ..RunMetadata::new(plan, global.layout(), aside, snapshot.digest, instance)
    };
    facts.store(run)?;
    put_checkpoint(&global, blobs, run, None, &[(PLAN, plan.text.0.as_bytes())])?;
    let mut snapshots = KeptSnapshots::default();
    snapshots.add(snapshot);
    Ok(RunModel {
        global,
        snapshots,
        facts,
        damage: None,
        used: Vec::new(),
    })
}

/// Removes blobs that the run does not name, which a crash left behind. Returns the updates of closed rounds to be
/// removed later, with their rounds.
fn sweep(run: &RunStore, blobs: &Blobs, keep_updates: bool, version: u64) -> Result<Vec<(u64, Digest)>, ServeError> {
    let settled = run.checkpoints()?.last().map_or(0, |oldest| oldest.version);
    let first_kept = if keep_updates { 0 } else { settled + 1 };
    let own = named(run, first_kept)?;
    let noted = first_kept.to_le_bytes();
    if !keep_updates && run.meta(UPDATES_FROM)?.as_deref() != Some(&noted) {
        run.set_meta(UPDATES_FROM, &noted)?;
    }
    let removed = blobs.sweep(&own.blobs)?;
    if removed > 0 {
        tracing::info!(removed, "removed blobs that no record names");
    }
    let closed = own.updates.into_iter().filter(|(round, _)| *round <= version);
    Ok(if keep_updates { Vec::new() } else { closed.collect() })
}

#[derive(Default)]
struct NeededBlobs {
    blobs: BTreeSet<Digest>,
    /// The updates among them, with their rounds.
    updates: Vec<(u64, Digest)>,
}

/// The blobs that a run needs if updates are kept from the round `first_kept` on.
fn named(run: &RunStore, first_kept: u64) -> Result<NeededBlobs, ServeError> {
    let mut named = NeededBlobs::default();
    if let Some(facts) = RunMetadata::load(run)? {
        named.blobs.insert(digest(&facts.initial)?);
        named.blobs.extend(facts.aside()?.base);
    }
    named.blobs.extend(KeptSnapshots::load(run)?.digests());
    named.blobs.extend(run.checkpoints()?.iter().map(|kept| kept.blob));
    for record in run.records() {
        match record? {
            Record::UpdateAccepted { round, update, .. } if round >= first_kept => {
                named.updates.push((round, update.digest));
            }
            Record::RoundClosed { step, .. } => {
                named.blobs.insert(step.frame);
            }
            _ => {}
        }
    }
    named.blobs.extend(named.updates.iter().map(|(_, digest)| *digest));
    Ok(named)
}

fn digest(text: &str) -> Result<Digest, ServeError> {
    text.parse()
        .map_err(|e| PersistenceError::stored("facts", format_args!("{e}")).into())
}
