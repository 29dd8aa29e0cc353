//! Audits a run in its store: computes every entry of the hash chain, model, model update, checkpoint and snapshot again
//! and compares.
//!
//! The audit is read-only and trusts only the first weights: everything else must follow from them and the updates.
//! Where updates were not kept, the audit continues from a checkpoint, which then counts as not checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use fl_compress::{Digest, Frame, Layout};

use crate::accounting::hash_chain::entries;
use crate::accounting::ledger::{Row, stored_rows};
use crate::config::plan::RunPlan;
use crate::model::kept_snapshots::KeptSnapshots;
use crate::model::model_store::UPDATES_FROM;
use crate::model::restore::Fallback;
use crate::model::run_metadata::stored_plan;
use crate::model::{GlobalModel, ModelError, Replayed, RolledBack, replayed, sum_frames};
use crate::reporting::inspect::{self, InspectError, begun_run};
use crate::storage::blobs::{BlobError, Blobs};
use crate::storage::disk::Disk;
use crate::storage::record::Record;
use crate::storage::store::{Checkpoint, RunStore, Store};

/// The findings about a run.
#[derive(Debug)]
pub(crate) struct Audit {
    /// The run.
    pub(crate) run: String,
    /// Whether its plan is known.
    pub(crate) plan: Found,
    /// Whether version 0 is as recorded.
    pub(crate) initial: Found,
    /// Whether the file of its frozen tensors is as recorded; `None` if it has none.
    pub(crate) base: Option<Found>,
    /// Its closed rounds, in order.
    pub(crate) rounds: Vec<Round>,
    /// Whether each checkpoint equals the model and state that the rounds before it make, by version.
    pub(crate) checkpoints: BTreeMap<u64, Found>,
    /// Whether each kept snapshot equals the model that the rounds before it make, by version.
    pub(crate) snapshots: BTreeMap<u64, Found>,
    /// Damage that the server has found and worked around before.
    pub(crate) notes: Vec<String>,
}

/// The findings about a closed round.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) round: u64,
    /// Whether its records and ledger rows make its entry of the hash chain.
    pub(crate) link: Found,
    /// Whether its model update makes the recorded model.
    pub(crate) model: Found,
    /// Whether its updates make that model update.
    pub(crate) aggregation: Found,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// As recorded.
    Good,
    /// Not as recorded, and why.
    Bad(String),
    /// Not checked, and why.
    Unknown(String),
}

impl Found {
    fn of<T>(result: Result<T, String>) -> Self {
        result.map_or_else(Self::Bad, |_| Self::Good)
    }
}

impl Audit {
    /// Whether no check failed.
    pub(crate) fn is_good(&self) -> bool {
        self.found().iter().all(|(_, _, found)| !matches!(found, Found::Bad(_)))
    }

    /// The checks that could not be made, each with a range of rounds or versions.
    pub(crate) fn unchecked(&self) -> Vec<(&'static str, u64, u64)> {
        let mut out: Vec<(&'static str, u64, u64)> = Vec::new();
        for (check, number, found) in self.found() {
            match (found, out.iter_mut().rfind(|(of, ..)| *of == check)) {
                (Found::Unknown(_), Some((.., last))) if *last + 1 == number => *last = number,
                (Found::Unknown(_), _) => out.push((check, number, number)),
                _ => {}
            }
        }
        out
    }

    /// Every check, with its round or version.
    fn found(&self) -> Vec<(&'static str, u64, &Found)> {
        let rounds = self.rounds.iter().flat_map(|r| {
            [
                ("link", r.round, &r.link),
                ("model", r.round, &r.model),
                ("aggregation", r.round, &r.aggregation),
            ]
        });
        let checkpoints = self
            .checkpoints
            .iter()
            .map(|(version, found)| ("checkpoint", *version, found));
        let snapshots = self
            .snapshots
            .iter()
            .map(|(version, found)| ("snapshot", *version, found));
        let first = [("plan", 0, &self.plan), ("first weights", 0, &self.initial)];
        let base = self.base.iter().map(|found| ("base", 0, found));
        let kept = checkpoints.chain(snapshots);
        first.into_iter().chain(base).chain(rounds).chain(kept).collect()
    }
}

/// Audits a run of the store below `data`, which no server may have open. Without a name, the only run. `plan`:
/// compared with the plan with which the run began, and used where the store has none. Blocks for about as long as the
/// run's rounds took to close.
///
/// # Errors
/// `NotThere` if there is no such run, or it was begun with another plan; those of the store, also for a record or row
/// that cannot be read.
pub(crate) fn audit(data: &Path, run: Option<&str>, plan: Option<RunPlan>) -> Result<Audit, InspectError> {
    let store = Store::open(data, Disk::default())?;
    let (run, facts) = begun_run(&store, run)?;
    let corrupt = |text: String| InspectError::Corrupt(text);
    let blobs = Blobs::open(data, run.name(), Disk::default()).map_err(|e| corrupt(e.to_string()))?;
    let (begun, model) = started(&run)?;
    if plan.as_ref().is_some_and(|plan| plan.digest() != begun) {
        let text = format!("run {} was begun with another plan than the one given", run.name());
        return Err(InspectError::NotThere(text));
    }
    let plan = plan.map_or_else(|| stored_plan(&run, begun), |plan| Ok(Ok(plan)))?;
    let mut links = checked_links(&run)?;
    let closed = replayed(run.records(), 0)?;
    let layout = Arc::new(facts.layout()?);
    let fallbacks = Fallback::load(&run)?;
    let mut notes: Vec<String> = fallbacks.iter().map(ToString::to_string).collect();
    notes.extend(store.head_was_missing()?.map(|commits| {
        format!(
            "data/head was missing when the store had {commits} commits: whether it had lost any before is not known"
        )
    }));
    let mut again = Again {
        forgotten: Fallback::forgotten(&fallbacks),
        updates_from: updates_from(&run)?,
        checkpoints: run.checkpoints()?,
        snapshots: KeptSnapshots::load(&run).map_err(|e| corrupt(e.to_string()))?,
        ..Again::new(blobs, layout, &facts.initial, plan.as_ref())
    };
    let history = inspect::history(&run)?;
    let initial = Found::of(again.is_model(&model));
    let base = facts
        .aside()?
        .base
        .map(|base| Found::of(checked_base(&again.blobs, &base)));
    let mut checkpoints: BTreeMap<u64, Found> = again.checkpoint(0, &model).into_iter().collect();
    let mut snapshots: BTreeMap<u64, Found> = again.snapshot(0).into_iter().collect();
    let mut rounds = Vec::new();
    for round in &closed {
        if let Some(base) = &round.base {
            again.roll_back(base, &facts.initial, history.steps(base.to));
            checkpoints.extend(again.checkpoint(base.version, &base.model));
            snapshots.extend(again.snapshot(base.version));
        }
        rounds.push(Round {
            round: round.round,
            link: links
                .remove(&round.round)
                .unwrap_or_else(|| Found::Bad("the ledger has no entry for it".to_owned())),
            aggregation: again.aggregation(round),
            model: Found::of(again.step(round)),
        });
        checkpoints.extend(again.checkpoint(round.round, &round.model));
        snapshots.extend(again.snapshot(round.round));
    }
    Ok(Audit {
        run: run.name().to_string(),
        plan: plan.map_or_else(Found::Unknown, |_| Found::Good),
        initial,
        base,
        rounds,
        checkpoints,
        snapshots,
        notes,
    })
}

/// Checks the file of the frozen tensors, in blocks.
fn checked_base(blobs: &Blobs, base: &Digest) -> Result<(), String> {
    let (file, path) = blobs.file(base).map_err(|e| e.to_string())?;
    let found = Digest::of_reader(file).map_err(|e| format!("{}: {e}", path.display()))?;
    (found == *base)
        .then_some(())
        .ok_or_else(|| format!("{} has the digest {found}", path.display()))
}

/// The first round from which all updates are stored.
fn updates_from(run: &RunStore) -> Result<Option<u64>, InspectError> {
    let value = run.meta(UPDATES_FROM)?;
    let strange = |_| InspectError::Corrupt(format!("entry {UPDATES_FROM} of run {}: not a number", run.name()));
    let number = value.map(|value| <[u8; 8]>::try_from(value).map(u64::from_le_bytes));
    number.transpose().map_err(strange)
}

/// Digests of the plan and the first weights, as recorded.
fn started(run: &RunStore) -> Result<(Digest, Digest), InspectError> {
    for record in run.records() {
        if let Record::Started { plan, model, .. } = record? {
            return Ok((plan, model));
        }
    }
    Err(InspectError::NotThere(format!("run {} has not begun yet", run.name())))
}

/// The stored entries of the hash chain, and those computed from records and rows.
fn checked_links(run: &RunStore) -> Result<BTreeMap<u64, Found>, InspectError> {
    let (made, _) = entries(run.records(), stored_rows(run))?;
    let mut stored = Vec::new();
    for row in stored_rows(run) {
        if let Row::Entry { round, entry } = row? {
            stored.push((round, entry));
        }
    }
    let mut broken = None;
    let found = made.into_iter().zip(stored).map(|((round, made), (_, stored))| {
        let found = match broken {
            Some(before) => Found::Unknown(format!("it follows from that of round {before}")),
            None if made == stored => Found::Good,
            None => {
                broken = Some(round);
                Found::Bad("records or ledger rows since the link before are not those of the link".to_owned())
            }
        };
        (round, found)
    });
    Ok(found.collect())
}

/// The run as computed again.
struct Again<'a> {
    blobs: Blobs,
    layout: Arc<Layout>,
    plan: Result<&'a RunPlan, String>,
    /// Versions at which the server's residual and optimizer state were reset.
    forgotten: BTreeSet<u64>,
    /// The first round from which all updates are stored, if the store has the number.
    updates_from: Option<u64>,
    /// Newest first.
    checkpoints: Vec<Checkpoint>,
    snapshots: KeptSnapshots,
    /// The sum of the frames so far, or why there is none.
    model: Result<Vec<f32>, String>,
    /// The model with the server's state, or why aggregation cannot continue.
    global: Result<GlobalModel, String>,
    /// The version of the checkpoint from which the audit continues, if the state does not follow from the updates.
    taken_from: Option<u64>,
}

impl<'a> Again<'a> {
    fn new(blobs: Blobs, layout: Arc<Layout>, initial: &str, plan: Result<&'a RunPlan, &String>) -> Self {
        let first = || -> Result<Vec<f32>, String> {
            let initial: Digest = initial.parse().map_err(|e| format!("facts: {e}"))?;
            let read = |digest: &Digest, bytes: &mut Vec<u8>| blobs.read(digest, bytes);
            sum_frames(&layout, &initial, &[], read).map_err(|e| e.to_string())
        };
        let (model, plan) = (first(), plan.map_err(Clone::clone));
        let global = plan.clone().and_then(|plan| {
            let model = model
                .clone()
                .map_err(|_| "the first weights are not there".to_owned())?;
            GlobalModel::initial(Arc::clone(&layout), model, plan).map_err(|e| e.to_string())
        });
        Self {
            blobs,
            layout,
            plan,
            forgotten: BTreeSet::new(),
            updates_from: None,
            checkpoints: Vec::new(),
            snapshots: KeptSnapshots::default(),
            model,
            global,
            taken_from: None,
        }
    }

    /// Rolls back to an older version, whose model the frames of `steps` make.
    fn roll_back(&mut self, base: &RolledBack, initial: &str, steps: Option<Vec<Digest>>) {
        let model = || -> Result<Vec<f32>, String> {
            let steps = steps.ok_or("a round before it is missing")?;
            let initial: Digest = initial.parse().map_err(|e| format!("facts: {e}"))?;
            let read = |digest: &Digest, bytes: &mut Vec<u8>| self.blobs.read(digest, bytes);
            sum_frames(&self.layout, &initial, &steps, read).map_err(|e| e.to_string())
        };
        let model = model().map_err(|why| format!("the rollback to version {}: {why}", base.to));
        self.global = self.plan.clone().and_then(|plan| {
            let model = model.clone()?;
            let global = GlobalModel::initial(Arc::clone(&self.layout), model.clone(), plan);
            let rolled = global.and_then(|mut global| {
                global.roll_back(base.version, model, &base.model)?;
                Ok(global)
            });
            rolled.map_err(|e| e.to_string())
        });
        self.taken_from = None;
        self.model = model;
    }

    /// Checks that the sum of the frames is this model.
    fn is_model(&self, recorded: &Digest) -> Result<(), String> {
        let found = Digest::of_f32(self.model.as_ref().map_err(Clone::clone)?);
        (found == *recorded)
            .then_some(())
            .ok_or_else(|| format!("its digest is {found}, recorded is {recorded}"))
    }

    /// Adds the model update of a round and checks the model.
    fn step(&mut self, round: &Replayed) -> Result<(), String> {
        let model = self.model.as_mut().map_err(|why| why.clone())?;
        let add = |model: &mut Vec<f32>| -> Result<(), String> {
            let bytes = self.blobs.get(&round.frame).map_err(|e| e.to_string())?;
            let frame = Frame::parse(&bytes, &self.layout).map_err(|e| e.to_string())?;
            frame.apply(model).map_err(|e| e.to_string())
        };
        if let Err(why) = add(model) {
            self.model = Err(format!("the step of round {} is not there", round.round));
            return Err(why);
        }
        self.is_model(&round.model)
    }

    /// Checks the digests of a round's updates; `None` if all are right. `Bad`: one is wrong, or is
    /// missing although updates are kept. `Unknown`: some were removed, as the configuration says.
    fn updates(&self, round: &Replayed) -> Option<Found> {
        let (mut bytes, mut removed) = (Vec::new(), Vec::new());
        for update in &round.updates {
            match self.blobs.read(&update.frame, &mut bytes) {
                Ok(()) => {}
                Err(BlobError::Missing(_)) if self.updates_from.is_some_and(|from| round.round < from) => {
                    removed.push(update.client.as_str());
                }
                Err(why) => return Some(Found::Bad(format!("the update of {}: {why}", update.client))),
            }
        }
        let why = "the server did not keep the updates of ";
        (!removed.is_empty()).then(|| Found::Unknown(format!("{why}{} (keep_updates = false)", removed.join(", "))))
    }

    /// Computes the model update of a round from its updates and compares.
    fn aggregation(&mut self, round: &Replayed) -> Found {
        if let Some(found) = self.updates(round) {
            self.global = Err(format!("the updates of round {} are not all there", round.round));
            return found;
        }
        let global = match &mut self.global {
            Ok(global) => global,
            Err(why) => return Found::Unknown(why.clone()),
        };
        if let Err(why) = global.replay(round, |digest, bytes| self.blobs.read(digest, bytes)) {
            self.global = Err(format!("round {} went wrong", round.round));
            let hint = match why {
                ModelError::Differs { what: "frame", .. } => {
                    ", unless another version of this program closed the round"
                }
                _ => "",
            };
            return Found::Bad(format!("{why}{hint}"));
        }
        Found::Good
    }

    /// Checks the checkpoint of the version that the rounds so far make, if there is one. Where the updates before it
    /// were not kept, aggregation continues from it.
    fn checkpoint(&mut self, version: u64, model: &Digest) -> Option<(u64, Found)> {
        if self.forgotten.contains(&version)
            && let Ok(global) = &mut self.global
            && let Err(why) = global.forget()
        {
            self.global = Err(why.to_string());
        }
        let blob = self.checkpoints.iter().find(|one| one.version == version)?.blob;
        let found = match self.loaded(&blob, model) {
            Err(found) => found,
            Ok((loaded, bytes)) => match &self.global {
                Ok(global) if global.save() == bytes => match self.taken_from {
                    None => Found::Good,
                    Some(from) => Found::Unknown(format!("it follows from the checkpoint of version {from}")),
                },
                Ok(_) => Found::Bad("its residual or optimizer state is not what the rounds before it make".to_owned()),
                Err(why) => {
                    let why =
                        format!("its model is as recorded, its residual and optimizer state cannot be computed: {why}");
                    (self.global, self.taken_from) = (Ok(loaded), Some(version));
                    Found::Unknown(why)
                }
            },
        };
        Some((version, found))
    }

    /// Checks the snapshot of the version that the rounds so far make, if it is kept.
    fn snapshot(&self, version: u64) -> Option<(u64, Found)> {
        let part = self.snapshots.of_version(version)?;
        let same = || -> Result<(), String> {
            let mut model = vec![0.0; self.layout.len()];
            let bytes = self.blobs.get(&part.digest).map_err(|e| e.to_string())?;
            let frame = Frame::parse(&bytes, &self.layout).map_err(|e| e.to_string())?;
            frame.apply(&mut model).map_err(|e| e.to_string())?;
            self.is_model(&Digest::of_f32(&model))
        };
        Some((version, Found::of(same())))
    }

    /// A checkpoint whose model is the recorded one, with its bytes.
    fn loaded(&self, blob: &Digest, model: &Digest) -> Result<(GlobalModel, Vec<u8>), Found> {
        let bytes = self.blobs.get(blob).map_err(|e| Found::Bad(e.to_string()))?;
        let plan = self.plan.clone().map_err(Found::Unknown)?;
        let loaded =
            GlobalModel::load(Arc::clone(&self.layout), plan, &bytes).map_err(|e| Found::Bad(e.to_string()))?;
        let found = loaded.digest();
        if found != *model {
            return Err(Found::Bad(format!("its model has digest {found}, recorded is {model}")));
        }
        Ok((loaded, bytes))
    }
}
