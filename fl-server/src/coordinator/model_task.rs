//! The desk where the global model lies. One heavy job at a time is done on it, on the blocking pool: closing a round,
//! making a snapshot, writing a checkpoint. The coordinator says what is wanted and is told what is finished.

use crate::model::model_store::ModelStore;
use crate::model::model_store::UPDATES_FROM;
use crate::model::model_store::put_checkpoint;
use crate::model::model_store::put_snapshot;
use std::sync::Arc;

use fl_compress::{Digest, Stages};
use fl_proto::FramePart;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::accounting::ledger::{Fidelity, Section};
use crate::error::ServeError;
use crate::model::{GlobalModel, Limited, sum_frames};
use crate::state_machine::Contribution;

/// What became of a job, as far as the coordinator must know.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "one value a round, moved twice")]
pub(crate) enum JobOutcome {
    /// A round's step is durable.
    Closed {
        round: u64,
        frame: Digest,
        frame_len: u64,
        stages: Stages,
        model: Digest,
        /// Where the bytes of the updates' frames went, and those of the step's.
        sections: [Vec<Section>; 2],
        /// Updates that count for less than claimed.
        limited: Vec<Limited>,
        /// How faithful the step's frame is.
        fidelity: Vec<Fidelity>,
    },
    /// Nothing that changes the run.
    Other,
}

/// Asks for the frame of the whole model.
type Wanted = (u64, oneshot::Sender<Option<FramePart>>);

/// A round to be closed.
#[derive(Debug)]
struct Close {
    round: u64,
    updates: Vec<Contribution>,
    limited: bool,
}

/// A version to go back to.
#[derive(Debug)]
pub(crate) struct RollBack {
    /// The version that it becomes.
    pub(crate) version: u64,
    /// Frames of the steps that lead to it from version 0.
    pub(crate) steps: Vec<Digest>,
    /// Digest of its model.
    pub(crate) model: Digest,
}

/// The model, the work that is wanted on it, and the work that is going on.
#[derive(Debug)]
pub(crate) struct ModelTask {
    /// Not here while a job has it.
    global: Option<Box<GlobalModel>>,
    version: u64,
    job: Option<JoinHandle<Result<Done, ServeError>>>,
    close: Option<Close>,
    roll_back: Option<RollBack>,
    wanted: Vec<Wanted>,
    /// The snapshot of the current version, if one was made.
    snapshot: Option<FramePart>,
    checkpoint_due: bool,
    keeper: Arc<ModelStore>,
    /// Rounds and updates that have been counted since the older checkpoint.
    used: Vec<(u64, Digest)>,
}

#[derive(Debug)]
struct Done {
    global: Box<GlobalModel>,
    finished: JobOutcome,
    snapshot: Option<FramePart>,
    /// Rounds and updates that a checkpoint job has left in place.
    used: Vec<(u64, Digest)>,
}

impl ModelTask {
    /// `used`: rounds and updates that the older checkpoint does not include.
    pub(crate) fn new(
        global: GlobalModel,
        snapshot: Option<FramePart>,
        keeper: ModelStore,
        used: Vec<(u64, Digest)>,
    ) -> Self {
        let (version, keeper) = (global.version(), Arc::new(keeper));
        Self {
            global: Some(Box::new(global)),
            version,
            job: None,
            close: None,
            roll_back: None,
            wanted: Vec::new(),
            snapshot,
            checkpoint_due: false,
            keeper,
            used,
        }
    }

    /// A round is to be closed; said any number of times.
    pub(crate) fn want_close(&mut self, round: u64, updates: Vec<Contribution>, limited: bool) {
        if self.global.is_some() && round > self.version {
            self.close = Some(Close {
                round,
                updates,
                limited,
            });
        }
    }

    /// The model becomes an older one before anything else is done with it. What is going on is finished and dropped.
    pub(crate) fn want_roll_back(&mut self, wanted: RollBack) {
        self.version = wanted.version;
        self.drop_snapshot();
        self.close = None;
        self.roll_back = Some(wanted);
        self.checkpoint_due = true;
    }

    /// Somebody wants the frame of the whole model.
    pub(crate) fn want_snapshot(&mut self, version: u64, reply: oneshot::Sender<Option<FramePart>>) {
        self.wanted.push((version, reply));
    }

    /// Answers what can be answered and starts the next job, if there is one and the model is here. Every round that
    /// was finished must be durable in the store by now.
    pub(crate) fn start(&mut self) {
        let Some(global) = self.global.take() else { return };
        self.answer();
        let keeper = Arc::clone(&self.keeper);
        let job = if let Some(wanted) = self.roll_back.take() {
            tokio::task::spawn_blocking(move || roll_back(global, &keeper, &wanted))
        } else if let Some(wanted) = self.close.take() {
            self.used
                .extend(wanted.updates.iter().map(|update| (wanted.round, update.frame)));
            tokio::task::spawn_blocking(move || close(global, &keeper, &wanted))
        } else if !self.wanted.is_empty() {
            tokio::task::spawn_blocking(move || snapshot(global, &keeper))
        } else if self.checkpoint_due {
            self.checkpoint_due = false;
            let used = std::mem::take(&mut self.used);
            tokio::task::spawn_blocking(move || checkpoint(global, &keeper, used))
        } else {
            self.global = Some(global);
            return;
        };
        self.job = Some(job);
    }

    /// Waits for the job that is going on; for ever if there is none. May be dropped and called again.
    ///
    /// # Errors
    /// Whatever made the job fail: the model is lost then and comes back by a restart.
    pub(crate) async fn finished(&mut self) -> Result<JobOutcome, ServeError> {
        let Some(job) = &mut self.job else {
            return std::future::pending().await;
        };
        let done = job.await;
        self.job = None;
        let Done {
            global,
            finished,
            snapshot,
            used,
        } = done??;
        self.used.extend(used);
        if self.roll_back.is_some() {
            // What was done belongs to a version that was taken back meanwhile; a blob that nothing names is removed at the
            // next start.
            self.global = Some(global);
            return Ok(JobOutcome::Other);
        }
        if let JobOutcome::Closed { round, .. } = finished {
            self.checkpoint_due |= round % self.keeper.checkpoint_every == 0;
            self.version = round;
            self.drop_snapshot();
        }
        self.snapshot = snapshot.or(self.snapshot.take());
        self.global = Some(global);
        Ok(finished)
    }

    /// Finishes the job that is going on, if any.
    ///
    /// # Errors
    /// As [`Desk::finished`].
    pub(crate) async fn join(&mut self) -> Result<Option<JobOutcome>, ServeError> {
        if self.job.is_none() {
            return Ok(None);
        }
        self.finished().await.map(Some)
    }

    /// Answers who wants the snapshot that is there, or one that no longer will be.
    fn answer(&mut self) {
        let (version, snapshot) = (self.version, self.snapshot);
        let waiting = std::mem::take(&mut self.wanted)
            .into_iter()
            .filter_map(|(wanted, reply)| {
                if wanted == version && snapshot.is_none() {
                    return Some((wanted, reply));
                }
                // Whoever asked may be gone.
                let _ = reply.send(snapshot.filter(|_| wanted == version));
                None
            });
        self.wanted = waiting.collect();
    }

    /// The snapshot of an older version is of no use: whoever needs one gets the newest.
    fn drop_snapshot(&mut self) {
        let old = self.snapshot.take().filter(|old| old.digest != self.keeper.initial);
        if let Some(Err(error)) = old.map(|old| self.keeper.blobs.remove(&old.digest)) {
            tracing::warn!(%error, "old snapshot stays");
        }
    }
}

fn close(mut global: Box<GlobalModel>, keeper: &ModelStore, wanted: &Close) -> Result<Done, ServeError> {
    let read = |digest: &Digest, bytes: &mut Vec<u8>| keeper.blobs.read(digest, bytes);
    let round = wanted.round;
    let stepped = global.close(round, &wanted.updates, wanted.limited, read)?;
    if let Some(why) = &stepped.unused {
        tracing::error!(
            round,
            why,
            "the average was not used, the step is zero: the model would leave the range of f32"
        );
    }
    if let Some(over) = stepped.over_budget {
        let bits = over.used as f64 * 8.0 / global.layout().len().max(1) as f64;
        tracing::info!(
            round,
            asked = over.asked,
            bytes = over.used,
            bits,
            "the step takes more than its budget asks for"
        );
    }
    keeper.blobs.put(&stepped.frame)?;
    let (frame, frame_len, stages, model) = (
        stepped.digest,
        stepped.frame.len() as u64,
        stepped.stages,
        stepped.model,
    );
    let finished = JobOutcome::Closed {
        round,
        frame,
        frame_len,
        stages,
        model,
        sections: [stepped.uplink, stepped.downlink],
        limited: stepped.limited,
        fidelity: stepped.fidelity,
    };
    Ok(Done {
        global,
        finished,
        snapshot: None,
        used: Vec::new(),
    })
}

fn roll_back(mut global: Box<GlobalModel>, keeper: &ModelStore, wanted: &RollBack) -> Result<Done, ServeError> {
    let read = |digest: &Digest, bytes: &mut Vec<u8>| keeper.blobs.read(digest, bytes);
    let model = sum_frames(global.layout(), &keeper.initial, &wanted.steps, read)?;
    global.roll_back(wanted.version, model, &wanted.model)?;
    Ok(Done {
        global,
        finished: JobOutcome::Other,
        snapshot: None,
        used: Vec::new(),
    })
}

fn snapshot(global: Box<GlobalModel>, keeper: &ModelStore) -> Result<Done, ServeError> {
    let part = put_snapshot(&global, &keeper.blobs)?;
    Ok(Done {
        global,
        finished: JobOutcome::Other,
        snapshot: Some(part),
        used: Vec::new(),
    })
}

/// Writes a checkpoint, keeps the one before, and removes those before that. If updates are not kept, removes those that
/// the older of the two includes.
fn checkpoint(global: Box<GlobalModel>, keeper: &ModelStore, used: Vec<(u64, Digest)>) -> Result<Done, ServeError> {
    let before = keeper.run.checkpoints()?;
    let older = before.iter().find(|kept| kept.version < global.version()).copied();
    let settled = older.map_or(global.version(), |kept| kept.version);
    let note = (!keeper.keep_updates).then(|| (UPDATES_FROM, (settled + 1).to_le_bytes()));
    let also: Vec<(&str, &[u8])> = note.iter().map(|(key, value)| (*key, &value[..])).collect();
    let kept = put_checkpoint(&global, &keeper.blobs, &keeper.run, older, &also)?;
    for stale in before.iter().filter(|before| !kept.contains(before)) {
        keeper.blobs.remove(&stale.blob)?;
    }
    let mut rest = used;
    if !keeper.keep_updates {
        let (done, later): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(round, _)| *round <= settled);
        for (_, digest) in done {
            if !later.iter().any(|(_, needed)| *needed == digest) {
                keeper.blobs.remove(&digest)?;
            }
        }
        rest = later;
    }
    tracing::debug!(version = global.version(), "checkpoint written");
    Ok(Done {
        global,
        finished: JobOutcome::Other,
        snapshot: None,
        used: rest,
    })
}
