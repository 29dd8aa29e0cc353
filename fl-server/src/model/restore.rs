//! Restores the newest model of a run from the stored data, working around damage.
//!
//! Sources, in this order: the newest checkpoint and the rounds after it; the older checkpoint; the initial weights and
//! all updates. Each of them gives the same bits, including the server's residual and the optimizer state. If all of
//! them are damaged, the initial weights and all model updates still give the same model, but residual and optimizer
//! state are reset; the store then records the version, so that later rounds can be replayed.

use std::collections::BTreeSet;
use std::sync::Arc;

use fl_compress::{Digest, Layout};
use serde::{Deserialize, Serialize};

use crate::config::plan::RunPlan;
use crate::model::model_store::put_checkpoint;
use crate::model::persistence_error::PersistenceError;
use crate::model::run_metadata::{RunMetadata, stored_plan};
use crate::model::version_path::stored_model;
use crate::model::{GlobalModel, ModelError};
use crate::state_machine::{Millis, RecordedRounds, State};
use crate::storage::blobs::{BlobError, Blobs};
use crate::storage::store::{Checkpoint, RunStore};

/// From what a model was computed when its newest checkpoint could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fallback {
    pub(crate) version: u64,
    pub(crate) source: Source,
    pub(crate) why: String,
    pub(crate) at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// An older checkpoint, of this version.
    Checkpoint(u64),
    Updates,
    Steps,
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, why, .. } = self;
        write!(
            f,
            "stored data cannot be used: {why}. Model version {version} was computed from "
        )?;
        match self.source {
            Source::Checkpoint(older) => write!(f, "the checkpoint of version {older}; nothing is lost"),
            Source::Updates => f.write_str("the first weights and the updates of all rounds; nothing is lost"),
            Source::Steps => f.write_str(
                "the first weights and the steps of all rounds: the model is exact, but the server's residual and the \
                 optimizer's state begin anew",
            ),
        }
    }
}

const FALLBACKS: &str = "fallbacks";

impl Fallback {
    /// The fallbacks of a run, in the order in which they happened.
    pub(crate) fn load(run: &RunStore) -> Result<Vec<Self>, PersistenceError> {
        let Some(bytes) = run.meta(FALLBACKS)? else {
            return Ok(Vec::new());
        };
        let parsed = serde_json::from_slice(&bytes);
        parsed.map_err(|e| PersistenceError::stored(format_args!("fallbacks of run {}", run.name()), e))
    }

    /// The versions at which residual and optimizer state were reset.
    pub(crate) fn forgotten(all: &[Self]) -> BTreeSet<u64> {
        let steps = all.iter().filter(|one| one.source == Source::Steps);
        steps.map(|one| one.version).collect()
    }
}

#[derive(Debug)]
pub(crate) struct RestoredModel {
    pub(crate) global: GlobalModel,
    pub(crate) facts: RunMetadata,
    /// What is damaged, if the newest checkpoint could not be used.
    pub(crate) fallback: Option<Fallback>,
}

/// Computes the model of the newest version. If that took a fallback, writes a checkpoint and notes the fallback.
///
/// # Errors
/// `Plan` if the run was begun with another plan; `Model` if nothing that is stored makes the model, or a round done again
/// makes another one than recorded; those of disk and store.
pub(crate) fn restore(
    plan: &RunPlan,
    run: &RunStore,
    blobs: &Blobs,
    state: &State,
    now: Millis,
) -> Result<RestoredModel, PersistenceError> {
    if state.plan() != Some(plan.digest()) {
        let stored = state.plan().map(|begun| stored_plan(run, begun)).transpose()?;
        let changed = match stored {
            Some(Ok(begun)) => plan.changed_from(&begun).join("; "),
            _ => "more than a comment or the path of `model` was changed".to_owned(),
        };
        let run = plan.name.clone();
        return Err(PersistenceError::OtherPlan { run, changed });
    }
    let facts = RunMetadata::load(run)?;
    let facts = facts.ok_or_else(|| missing(run, "facts"))?;
    let mut fallbacks = Fallback::load(run)?;
    let sources = Sources {
        plan,
        run,
        blobs,
        state,
        initial: &facts.initial,
        layout: Arc::new(facts.layout()?),
        forgotten: Fallback::forgotten(&fallbacks),
    };
    let checkpoints = run.checkpoints()?;
    let (global, found) = sources.best(&checkpoints)?;
    if (global.version(), global.digest()) != (state.version(), state.model()) {
        return Err(PersistenceError::OtherModel {
            version: global.version(),
            found: global.digest(),
            recorded: state.model(),
        });
    }
    let Some((source, why)) = found else {
        return Ok(RestoredModel {
            global,
            facts,
            fallback: None,
        });
    };
    let fallback = Fallback {
        version: global.version(),
        source,
        why,
        at: now,
    };
    tracing::error!("{fallback}");
    fallbacks.push(fallback.clone());
    let older = match source {
        Source::Checkpoint(version) => checkpoints.iter().find(|one| one.version == version),
        Source::Updates | Source::Steps => None,
    };
    let older = older.filter(|one| one.version < global.version()).copied();
    // One that is damaged may be in the place of the new one.
    for bad in checkpoints.iter().filter(|one| Some(**one) != older) {
        blobs.remove(&bad.blob)?;
    }
    let note = serde_json::to_vec(&fallbacks).expect("strings and numbers are always JSON");
    put_checkpoint(&global, blobs, run, older, &[(FALLBACKS, &note)])?;
    Ok(RestoredModel {
        global,
        facts,
        fallback: Some(fallback),
    })
}

fn missing(run: &RunStore, what: &str) -> PersistenceError {
    PersistenceError::stored(
        format_args!("{what} of run {}", run.name()),
        "missing, although the run has begun",
    )
}

struct Sources<'a> {
    plan: &'a RunPlan,
    run: &'a RunStore,
    blobs: &'a Blobs,
    state: &'a State,
    /// Digest of the snapshot of version 0.
    initial: &'a str,
    layout: Arc<Layout>,
    /// Versions at which residual and optimizer state were reset.
    forgotten: BTreeSet<u64>,
}

/// A model, or what is damaged of its source.
type Computation = Result<GlobalModel, String>;

impl Sources<'_> {
    /// The model from the first source that is whole; where that is not the newest checkpoint, also which it is and what
    /// of those before it is damaged.
    fn best(&self, checkpoints: &[Checkpoint]) -> Result<(GlobalModel, Option<(Source, String)>), PersistenceError> {
        let mut damaged = Vec::new();
        for (i, checkpoint) in checkpoints.iter().enumerate() {
            let version = checkpoint.version;
            match self.by_checkpoint(checkpoint)? {
                Ok(global) if i == 0 => return Ok((global, None)),
                Ok(global) => return Ok((global, Some((Source::Checkpoint(version), damaged.join("; "))))),
                Err(why) => damaged.push(format!("from the checkpoint of version {version}: {why}")),
            }
        }
        if damaged.is_empty() {
            damaged.push("the store names no checkpoint".to_owned());
        }
        match self.by_updates()? {
            Ok(global) => return Ok((global, Some((Source::Updates, damaged.join("; "))))),
            Err(why) => damaged.push(format!("from the updates of all rounds: {why}")),
        }
        match self.by_steps() {
            Ok(global) => Ok((global, Some((Source::Steps, damaged.join("; "))))),
            Err(why) => {
                damaged.push(format!("from the model updates of all rounds: {why}"));
                Err(PersistenceError::Damaged(damaged))
            }
        }
    }

    fn by_checkpoint(&self, checkpoint: &Checkpoint) -> Result<Computation, PersistenceError> {
        let bytes = match self.blobs.get(&checkpoint.blob) {
            Ok(bytes) => bytes,
            Err(BlobError::Disk(error)) => return Err(error.into()),
            Err(why) => return Ok(Err(why.to_string())),
        };
        match GlobalModel::load(Arc::clone(&self.layout), self.plan, &bytes) {
            Ok(global) => self.rounds(global),
            Err(why) => Ok(Err(why.to_string())),
        }
    }

    fn by_updates(&self) -> Result<Computation, PersistenceError> {
        let mut rounds = 0;
        for round in RecordedRounds::of(self.run.records()) {
            let round = round?;
            if round.step.is_none() {
                continue;
            }
            rounds += 1;
            for update in round.updates.values() {
                // Before anything is computed for nothing.
                if self.blobs.len(&update.digest)?.is_none() {
                    return Ok(Err(format!("blob {} is missing", update.digest)));
                }
            }
        }
        let first = self.sum(0).and_then(|model| {
            GlobalModel::initial(Arc::clone(&self.layout), model, self.plan).map_err(|e| e.to_string())
        });
        match first {
            Ok(global) => {
                tracing::info!(rounds, "all rounds are computed again");
                self.rounds(global)
            }
            Err(why) => Ok(Err(why)),
        }
    }

    fn by_steps(&self) -> Computation {
        let version = self.state.version();
        // No step made the version of a rollback.
        let newest = self.state.versions().last().filter(|newest| newest.base.is_none());
        let made_by = newest.map(|newest| newest.frame);
        let model = self.sum(version)?;
        let layout = Arc::clone(&self.layout);
        let global = GlobalModel::from_frames(layout, model, version, made_by, self.plan).map_err(|e| e.to_string())?;
        let found = global.digest();
        let recorded = self.state.model();
        if found != recorded {
            return Err(format!("version {version} has digest {found}, recorded is {recorded}"));
        }
        Ok(global)
    }

    /// Closes the rounds after the version of `global` again.
    fn rounds(&self, mut global: GlobalModel) -> Result<Computation, PersistenceError> {
        let versions = self.state.versions();
        // What was taken back by a rollback need not be repeated.
        if let Some((version, to)) = versions
            .rolled_back()
            .filter(|(version, _)| *version > global.version())
        {
            match self.sum(to) {
                Ok(model) => global.roll_back(version, model, &versions.model(version).unwrap_or(Digest([0; 32])))?,
                Err(why) => return Ok(Err(why)),
            }
        }
        self.forget(&mut global)?;
        let after = global.version();
        for round in RecordedRounds::of(self.run.records()) {
            let round = round?;
            let Some(step) = round.step.as_ref().filter(|_| round.round > after) else {
                continue;
            };
            let mut unread = None;
            let done = global.replay(&round.work(), step, |digest, bytes| {
                self.blobs
                    .read(digest, bytes)
                    .inspect_err(|error| unread = Some(error.clone()))
            });
            match (done, unread) {
                (Ok(()), _) => self.forget(&mut global)?,
                (Err(_), Some(BlobError::Disk(error))) => return Err(error.into()),
                (Err(why @ (ModelError::Frame { .. } | ModelError::Predictor { .. })), _) => {
                    return Ok(Err(why.to_string()));
                }
                // Which frame an encoder makes may change from program to program; what the frame decodes to may not.
                (Err(why @ ModelError::Differs { what: "frame", .. }), _) => {
                    return Ok(Err(format!(
                        "{why}, as the encoder of another version of this program makes it"
                    )));
                }
                (Err(why), _) => return Err(why.into()),
            }
        }
        Ok(Ok(global))
    }

    /// The model of a version, from the steps that lead to it.
    fn sum(&self, version: u64) -> Result<Vec<f32>, String> {
        let steps = self.state.versions().steps(version);
        let steps = steps.ok_or_else(|| format!("there is no version {version}"))?;
        stored_model(&self.layout, self.blobs, self.initial, &steps)
    }

    fn forget(&self, global: &mut GlobalModel) -> Result<(), PersistenceError> {
        if self.forgotten.contains(&global.version()) {
            global.forget()?;
        }
        Ok(())
    }
}
