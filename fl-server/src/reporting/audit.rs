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
use crate::accounting::ledger::stored_rows;
use crate::config::plan::RunPlan;
use crate::model::kept_snapshots::KeptSnapshots;
use crate::model::model_store::UPDATES_FROM;
use crate::model::restore::Fallback;
use crate::model::run_metadata::stored_plan;
use crate::model::version_path::stored_model;
use crate::model::{GlobalModel, ModelError};
use crate::reporting::inspect::{InspectError, begun_run};
use crate::state_machine::{RecordedRound, RecordedRounds, RecordedStep, Rollback};
use crate::storage::blobs::{BlobError, Blobs};
use crate::storage::disk::Disk;
use crate::storage::record::Record;
use crate::storage::store::{Checkpoint, RunStore, Store};

#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) run: String,
    pub(crate) plan: Finding,
    /// Whether version 0 is as recorded.
    pub(crate) initial: Finding,
    /// Whether the file of its frozen tensors is as recorded; `None` if it has none.
    pub(crate) base: Option<Finding>,
    pub(crate) rounds: Vec<Round>,
    /// Whether each checkpoint equals the model and state that the rounds before it make, by version.
    pub(crate) checkpoints: BTreeMap<u64, Finding>,
    /// Whether each kept snapshot equals the model that the rounds before it make, by version.
    pub(crate) snapshots: BTreeMap<u64, Finding>,
    /// Damage that the server has found and worked around before.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) round: u64,
    /// Whether its records and ledger rows make its entry of the hash chain.
    pub(crate) link: Finding,
    /// Whether its model update makes the recorded model.
    pub(crate) model: Finding,
    /// Whether its updates make that model update.
    pub(crate) aggregation: Finding,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// As recorded.
    Good,
    /// Not as recorded, and why.
    Bad(String),
    /// Not checked, and why.
    Unknown(String),
}

impl Finding {
    fn of<T>(result: Result<T, String>) -> Self {
        result.map_or_else(Self::Bad, |_| Self::Good)
    }
}

impl Audit {
    pub(crate) fn is_good(&self) -> bool {
        self.found()
            .iter()
            .all(|(_, _, found)| !matches!(found, Finding::Bad(_)))
    }

    /// The checks that could not be made, each with a range of rounds or versions.
    pub(crate) fn unchecked(&self) -> Vec<(&'static str, u64, u64)> {
        let mut out: Vec<(&'static str, u64, u64)> = Vec::new();
        for (check, number, found) in self.found() {
            match (found, out.iter_mut().rfind(|(of, ..)| *of == check)) {
                (Finding::Unknown(_), Some((.., last))) if *last + 1 == number => *last = number,
                (Finding::Unknown(_), _) => out.push((check, number, number)),
                _ => {}
            }
        }
        out
    }

    /// Every check, with its round or version.
    fn found(&self) -> Vec<(&'static str, u64, &Finding)> {
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
    let blobs = Blobs::open(data, run.name(), Disk::default()).map_err(|e| InspectError::Corrupt(e.to_string()))?;
    let (begun, recorded) = started(&run)?;
    if plan.as_ref().is_some_and(|plan| plan.digest() != begun) {
        let text = format!("run {} was begun with another plan than the one given", run.name());
        return Err(InspectError::NotThere(text));
    }
    let plan = plan.map_or_else(|| stored_plan(&run, begun), |plan| Ok(Ok(plan)))?;
    let mut links = checked_links(&run)?;
    let fallbacks = Fallback::load(&run)?;
    let mut notes: Vec<String> = fallbacks.iter().map(ToString::to_string).collect();
    notes.extend(store.head_was_missing()?.map(|commits| {
        format!(
            "data/head was missing when the store had {commits} commits: whether it had lost any before is not known"
        )
    }));
    let layout = Arc::new(facts.layout()?);
    let model = stored_model(&layout, &blobs, &facts.initial, &[]);
    let of_plan = plan.as_ref().map_err(Clone::clone);
    let global = of_plan.clone().and_then(|plan| {
        let first = model
            .clone()
            .map_err(|_| "the first weights are not there".to_owned())?;
        GlobalModel::initial(Arc::clone(&layout), first, plan).map_err(|e| e.to_string())
    });
    let mut again = Recomputation {
        blobs,
        layout,
        initial: &facts.initial,
        plan: of_plan,
        forgotten: Fallback::forgotten(&fallbacks),
        updates_from: updates_from(&run)?,
        checkpoints: run.checkpoints()?,
        snapshots: KeptSnapshots::load(&run).map_err(|e| InspectError::Corrupt(e.to_string()))?,
        model,
        global,
        taken_from: None,
    };
    let initial = Finding::of(again.is_model(&recorded));
    let base = facts.aside()?.base;
    let base = base.map(|base| Finding::of(checked_base(&again.blobs, &base)));
    let mut checkpoints: BTreeMap<u64, Finding> = again.checkpoint(0, &recorded).into_iter().collect();
    let mut snapshots: BTreeMap<u64, Finding> = again.snapshot(0).into_iter().collect();
    let mut rounds = Vec::new();
    let mut records = RecordedRounds::of(run.records());
    while let Some(closed) = records.next().transpose()? {
        let Some(step) = &closed.step else { continue };
        if let Some(base) = &closed.base {
            again.roll_back(base, records.versions().steps(base.to));
            checkpoints.extend(again.checkpoint(base.version, &base.model));
            snapshots.extend(again.snapshot(base.version));
        }
        let round = closed.round;
        let link = links.remove(&round);
        rounds.push(Round {
            round,
            link: link.unwrap_or_else(|| Finding::Bad("the ledger has no entry for it".to_owned())),
            aggregation: again.aggregation(&closed, step),
            model: Finding::of(again.step(round, step)),
        });
        checkpoints.extend(again.checkpoint(round, &step.model));
        snapshots.extend(again.snapshot(round));
    }
    Ok(Audit {
        run: run.name().to_string(),
        plan: plan.map_or_else(Finding::Unknown, |_| Finding::Good),
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

fn updates_from(run: &RunStore) -> Result<Option<u64>, InspectError> {
    let Some(value) = run.meta(UPDATES_FROM)? else {
        return Ok(None);
    };
    match <[u8; 8]>::try_from(value) {
        Ok(value) => Ok(Some(u64::from_le_bytes(value))),
        Err(_) => {
            let text = format!("entry {UPDATES_FROM} of run {}: not a number", run.name());
            Err(InspectError::Corrupt(text))
        }
    }
}

fn started(run: &RunStore) -> Result<(Digest, Digest), InspectError> {
    for record in run.records() {
        if let Record::Started { plan, model, .. } = record? {
            return Ok((plan, model));
        }
    }
    Err(InspectError::NotThere(format!("run {} has not begun yet", run.name())))
}

fn checked_links(run: &RunStore) -> Result<BTreeMap<u64, Finding>, InspectError> {
    let (links, _) = entries(run.records(), stored_rows(run))?;
    let mut broken = None;
    let findings = links.into_iter().map(|link| {
        let finding = match broken {
            Some(before) => Finding::Unknown(format!("it follows from that of round {before}")),
            None if link.computed == link.stored => Finding::Good,
            None => {
                broken = Some(link.round);
                Finding::Bad("records or ledger rows since the link before are not those of the link".to_owned())
            }
        };
        (link.round, finding)
    });
    Ok(findings.collect())
}

/// The run as computed again.
struct Recomputation<'a> {
    blobs: Blobs,
    layout: Arc<Layout>,
    /// Digest of the snapshot of version 0.
    initial: &'a str,
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

impl Recomputation<'_> {
    /// Rolls back to an older version, whose model the frames of `steps` make.
    fn roll_back(&mut self, base: &Rollback, steps: Option<Vec<Digest>>) {
        let model = match steps {
            Some(steps) => stored_model(&self.layout, &self.blobs, self.initial, &steps),
            None => Err("a round before it is missing".to_owned()),
        };
        self.model = model.map_err(|why| format!("the rollback to version {}: {why}", base.to));
        self.global = self.rolled_back(base);
        self.taken_from = None;
    }

    fn rolled_back(&self, base: &Rollback) -> Result<GlobalModel, String> {
        let plan = self.plan.clone()?;
        let model = self.model.clone()?;
        let mut global =
            GlobalModel::initial(Arc::clone(&self.layout), model.clone(), plan).map_err(|e| e.to_string())?;
        global
            .roll_back(base.version, model, &base.model)
            .map_err(|e| e.to_string())?;
        Ok(global)
    }

    /// Checks that the sum of the frames is this model.
    fn is_model(&self, recorded: &Digest) -> Result<(), String> {
        let found = Digest::of_f32(self.model.as_ref().map_err(Clone::clone)?);
        (found == *recorded)
            .then_some(())
            .ok_or_else(|| format!("its digest is {found}, recorded is {recorded}"))
    }

    fn step(&mut self, round: u64, step: &RecordedStep) -> Result<(), String> {
        let model = self.model.as_mut().map_err(|why| why.clone())?;
        if let Err(why) = add_frame(&self.blobs, &self.layout, &step.frame, model) {
            self.model = Err(format!("the step of round {round} is not there"));
            return Err(why);
        }
        self.is_model(&step.model)
    }

    /// Checks the digests of a round's updates; `None` if all are right. `Bad`: one is wrong, or is
    /// missing although updates are kept. `Unknown`: some were removed, as the configuration says.
    fn updates(&self, round: &RecordedRound) -> Option<Finding> {
        let mut bytes = Vec::new();
        let mut removed = Vec::new();
        for (client, update) in &round.updates {
            match self.blobs.read(&update.digest, &mut bytes) {
                Ok(()) => {}
                Err(BlobError::Missing(_)) if self.updates_from.is_some_and(|from| round.round < from) => {
                    removed.push(client.as_str());
                }
                Err(why) => return Some(Finding::Bad(format!("the update of {client}: {why}"))),
            }
        }
        let why = "the server did not keep the updates of ";
        (!removed.is_empty()).then(|| Finding::Unknown(format!("{why}{} (keep_updates = false)", removed.join(", "))))
    }

    /// Computes the model update of a round from its updates and compares.
    fn aggregation(&mut self, round: &RecordedRound, step: &RecordedStep) -> Finding {
        if let Some(found) = self.updates(round) {
            self.global = Err(format!("the updates of round {} are not all there", round.round));
            return found;
        }
        let global = match &mut self.global {
            Ok(global) => global,
            Err(why) => return Finding::Unknown(why.clone()),
        };
        if let Err(why) = global.replay(&round.work(), step, |digest, bytes| self.blobs.read(digest, bytes)) {
            self.global = Err(format!("round {} went wrong", round.round));
            let hint = match why {
                ModelError::Differs { what: "frame", .. } => {
                    ", unless another version of this program closed the round"
                }
                _ => "",
            };
            return Finding::Bad(format!("{why}{hint}"));
        }
        Finding::Good
    }

    /// Checks the checkpoint of the version that the rounds so far make, if there is one. Where the updates before it
    /// were not kept, aggregation continues from it.
    fn checkpoint(&mut self, version: u64, model: &Digest) -> Option<(u64, Finding)> {
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
                    None => Finding::Good,
                    Some(from) => Finding::Unknown(format!("it follows from the checkpoint of version {from}")),
                },
                Ok(_) => {
                    Finding::Bad("its residual or optimizer state is not what the rounds before it make".to_owned())
                }
                Err(why) => {
                    let why =
                        format!("its model is as recorded, its residual and optimizer state cannot be computed: {why}");
                    (self.global, self.taken_from) = (Ok(loaded), Some(version));
                    Finding::Unknown(why)
                }
            },
        };
        Some((version, found))
    }

    /// Checks the snapshot of the version that the rounds so far make, if it is kept.
    fn snapshot(&self, version: u64) -> Option<(u64, Finding)> {
        let part = self.snapshots.of_version(version)?;
        let mut model = vec![0.0; self.layout.len()];
        let same = add_frame(&self.blobs, &self.layout, &part.digest, &mut model)
            .and_then(|()| self.is_model(&Digest::of_f32(&model)));
        Some((version, Finding::of(same)))
    }

    /// A checkpoint whose model is the recorded one, with its bytes.
    fn loaded(&self, blob: &Digest, model: &Digest) -> Result<(GlobalModel, Vec<u8>), Finding> {
        let bytes = self.blobs.get(blob).map_err(|e| Finding::Bad(e.to_string()))?;
        let plan = self.plan.clone().map_err(Finding::Unknown)?;
        let loaded =
            GlobalModel::load(Arc::clone(&self.layout), plan, &bytes).map_err(|e| Finding::Bad(e.to_string()))?;
        let found = loaded.digest();
        if found != *model {
            return Err(Finding::Bad(format!(
                "its model has digest {found}, recorded is {model}"
            )));
        }
        Ok((loaded, bytes))
    }
}

fn add_frame(blobs: &Blobs, layout: &Layout, frame: &Digest, model: &mut [f32]) -> Result<(), String> {
    let bytes = blobs.get(frame).map_err(|e| e.to_string())?;
    let frame = Frame::parse(&bytes, layout).map_err(|e| e.to_string())?;
    frame.apply(model).map_err(|e| e.to_string())
}
