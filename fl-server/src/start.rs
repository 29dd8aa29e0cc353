//! Brings a run to where it was: begins it, or folds its records and computes its model again from the last checkpoint.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fl_compress::{Digest, Layout};
use fl_proto::FramePart;

use crate::blobs::Blobs;
use crate::chain::{Chain, links};
use crate::config::Tuning;
use crate::desk::{Desk, Keeper, put_checkpoint, put_snapshot};
use crate::disk::{Disk, Fault};
use crate::engine::{Input, Millis, State, decide};
use crate::global::{Global, replayed};
use crate::history::History;
use crate::inspect::{self, Facts};
use crate::plan::RunPlan;
use crate::record::Record;
use crate::serve::ServeError;
use crate::store::{RunStore, Store};
use crate::weights;

/// Everything that a server begins with.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) state: State,
    pub(crate) store: Store,
    pub(crate) run: RunStore,
    pub(crate) blobs: Blobs,
    pub(crate) desk: Desk,
    pub(crate) chain: Chain,
    pub(crate) history: History,
    pub(crate) layout: Arc<Layout>,
    pub(crate) instance: Digest,
}

/// Opens `data` and brings `plan` to where it was. `instance`: what tells the run from others of its name if it begins
/// now. Blocks.
///
/// # Errors
/// `Plan` if the folder has this run with another plan, or its model cannot be used; what is stored may be unusable.
pub(crate) fn start(
    data: &Path,
    plan: &RunPlan,
    tuning: Tuning,
    fault: Option<Arc<Fault>>,
    instance: Digest,
    now: Millis,
) -> Result<Started, ServeError> {
    let disk = Disk::new(fault);
    disk.create_dir(data)?;
    let store = Store::open(data, disk.clone())?;
    let blobs = Blobs::open(data, disk)?;
    let run = store.run(&plan.name)?;
    let (mut state, mut history) = (State::new(), History::default());
    let mut note = |state: &mut State, record: &Record| {
        history.add(record);
        state.apply(record)
    };
    let mut noted = Ok(());
    let records = run
        .records()
        .map(|record| record.map_err(ServeError::from))
        .inspect(|record| {
            if let (Ok(record), Ok(())) = (record, &noted) {
                noted = note(&mut state, record);
            }
        });
    let rows = inspect::rows(&run).map(|row| row.map_err(ServeError::from));
    let (_, mut chain) = links(records, rows)?;
    noted?;
    let (global, snapshot, facts) = if state.is_started() {
        let (global, facts) = restore(plan, &run, &blobs, &state)?;
        // Only now: what a damaged store does not name may be all that is left.
        sweep(&store, &blobs, tuning)?;
        (global, None, facts)
    } else {
        let (global, snapshot, facts) = begin(plan, &run, &blobs, instance)?;
        let first = Record::Started {
            plan: plan.digest(),
            model: global.digest(),
            at: now,
        };
        run.append(std::slice::from_ref(&first), &[])?;
        chain.record(&first);
        note(&mut state, &first)?;
        (global, Some(snapshot), facts)
    };
    if run.len() > 1 {
        let decision = decide(&state, plan, now, &BTreeSet::new(), Input::Resume);
        run.append(&decision.records, &[])?;
        for record in &decision.records {
            chain.record(record);
            note(&mut state, record)?;
        }
        tracing::info!(run = %plan.name, version = state.version(), "run continued");
    } else {
        tracing::info!(run = %plan.name, parameters = global.layout().len(), "run begun");
    }
    let layout = Arc::clone(global.layout());
    let keeper = Keeper {
        blobs: blobs.clone(),
        run: run.clone(),
        initial: digest(&facts.initial)?,
        checkpoint_every: tuning.checkpoint_every,
        keep_updates: tuning.keep_updates,
    };
    let desk = Desk::new(global, snapshot, keeper);
    Ok(Started {
        state,
        store,
        run,
        blobs,
        desk,
        chain,
        history,
        layout,
        instance: digest(&facts.instance)?,
    })
}

/// Reads the first weights and makes them durable: as a checkpoint, and as the snapshot that every client fetches.
fn begin(
    plan: &RunPlan,
    run: &RunStore,
    blobs: &Blobs,
    instance: Digest,
) -> Result<(Global, FramePart, Facts), ServeError> {
    let (layout, model) = weights::read(&plan.model).map_err(ServeError::Plan)?;
    let global = Global::initial(Arc::new(layout), model, plan).map_err(|e| ServeError::Plan(e.to_string()))?;
    let snapshot = put_snapshot(&global, blobs)?;
    let facts = Facts::new(plan, global.layout(), snapshot.digest, instance);
    facts.store(run)?;
    put_checkpoint(&global, blobs, run)?;
    Ok((global, snapshot, facts))
}

/// The model of the newest version: the last checkpoint, and the rounds after it closed again.
fn restore(plan: &RunPlan, run: &RunStore, blobs: &Blobs, state: &State) -> Result<(Global, Facts), ServeError> {
    if state.plan() != Some(plan.digest()) {
        return Err(ServeError::Plan(format!(
            "run `{0}` was begun with another plan; give the changed run another name, or serve it as it was (what was \
             changed is more than a comment or the path of `model`)",
            plan.name
        )));
    }
    let broken = |what: &str| ServeError::Model(format!("run `{}` has no {what}, although it has begun", plan.name));
    let facts = Facts::load(run)
        .map_err(|e| ServeError::Model(e.to_string()))?
        .ok_or_else(|| broken("facts"))?;
    let layout = facts.layout().map_err(|e| ServeError::Model(e.to_string()))?;
    let (_, blob) = run.checkpoint()?.ok_or_else(|| broken("checkpoint"))?;
    let mut global = Global::load(Arc::new(layout), plan, &blobs.get(&blob)?)?;
    for round in replayed(run.records(), global.version())? {
        global.replay(&round, |digest, bytes| blobs.read(digest, bytes))?;
    }
    if (global.version(), global.digest()) != (state.version(), state.model()) {
        let text = format!(
            "version {} has digest {}, recorded is {}",
            global.version(),
            global.digest(),
            state.model()
        );
        return Err(ServeError::Model(text));
    }
    Ok((global, facts))
}

/// Removes blobs that no run names: what a crash left behind.
fn sweep(store: &Store, blobs: &Blobs, tuning: Tuning) -> Result<(), ServeError> {
    let mut keep = BTreeSet::new();
    for name in store.runs()? {
        let run = store.run(&name)?;
        if let Some(facts) = Facts::load(&run).map_err(|e| ServeError::Model(e.to_string()))? {
            keep.insert(digest(&facts.initial)?);
        }
        let checkpoint = run.checkpoint()?;
        keep.extend(checkpoint.map(|(_, blob)| blob));
        let settled = checkpoint.map_or(0, |(version, _)| version);
        for record in run.records() {
            match record? {
                Record::UpdateAccepted { round, update, .. } if tuning.keep_updates || round > settled => {
                    keep.insert(update.digest);
                }
                Record::RoundClosed { frame, .. } => {
                    keep.insert(frame);
                }
                _ => {}
            }
        }
    }
    let removed = blobs.sweep(&keep)?;
    if removed > 0 {
        tracing::info!(removed, "blobs that no record names are gone");
    }
    Ok(())
}

fn digest(text: &str) -> Result<Digest, ServeError> {
    text.parse().map_err(|e| ServeError::Model(format!("facts: {e}")))
}
