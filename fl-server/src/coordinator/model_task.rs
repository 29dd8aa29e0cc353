//! Owns the global model and runs one heavy job at a time on it, on the blocking pool: closing a round, making a
//! snapshot, writing a checkpoint, rolling back. The coordinator requests jobs and receives their outcomes.

use std::sync::Arc;

use fl_compress::Digest;
use fl_proto::FramePart;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::plan::RoundedVersions;
use crate::error::ServeError;
use crate::model::kept_snapshots::KeptSnapshots;
use crate::model::model_store::{ModelStore, UPDATES_FROM, put_checkpoint, put_snapshot};
use crate::model::{GlobalModel, RoundResult, sum_frames};
use crate::state_machine::PendingWork;

#[derive(Debug)]
pub(crate) struct ClosedRound {
    pub(crate) round: u64,
    pub(crate) result: RoundResult,
}

#[derive(Debug)]
struct SnapshotRequest {
    version: u64,
    reply: oneshot::Sender<Option<FramePart>>,
}

#[derive(Debug)]
pub(crate) struct RollBack {
    /// The version that the restored model gets.
    pub(crate) version: u64,
    /// Frames of the model updates from version 0 to the restored model.
    pub(crate) steps: Vec<Digest>,
    pub(crate) model: Digest,
}

/// The model, the requests for it, and the job in progress.
#[derive(Debug)]
pub(crate) struct ModelTask {
    /// `None` while a job has it.
    global: Option<Box<GlobalModel>>,
    version: u64,
    job: Option<JoinHandle<Result<JobResult, ServeError>>>,
    close: Option<PendingWork>,
    roll_back: Option<RollBack>,
    wanted: Vec<SnapshotRequest>,
    /// Requests for the kept snapshots, while the one of a rounded version is due.
    wanted_kept: Vec<oneshot::Sender<Vec<FramePart>>>,
    snapshots: KeptSnapshots,
    rounded: Option<RoundedVersions>,
    checkpoint_due: bool,
    keeper: Arc<ModelStore>,
    /// Rounds and updates since the older checkpoint.
    used: Vec<(u64, Digest)>,
}

#[derive(Debug)]
struct JobResult {
    global: Box<GlobalModel>,
    closed: Option<ClosedRound>,
    /// With the one that a snapshot job has made.
    snapshots: Option<KeptSnapshots>,
    /// Rounds and updates that a checkpoint job has left in place.
    used: Vec<(u64, Digest)>,
}

impl From<Box<GlobalModel>> for JobResult {
    fn from(global: Box<GlobalModel>) -> Self {
        Self {
            global,
            closed: None,
            snapshots: None,
            used: Vec::new(),
        }
    }
}

impl ModelTask {
    /// `used`: rounds and updates that the older checkpoint does not include.
    pub(crate) fn new(
        global: GlobalModel,
        snapshots: KeptSnapshots,
        keeper: ModelStore,
        used: Vec<(u64, Digest)>,
    ) -> Self {
        Self {
            wanted_kept: Vec::new(),
            rounded: global.rounded_versions(),
            version: global.version(),
            global: Some(Box::new(global)),
            job: None,
            close: None,
            roll_back: None,
            wanted: Vec::new(),
            snapshots,
            checkpoint_due: false,
            keeper: Arc::new(keeper),
            used,
        }
    }

    /// Requests closing a round. Idempotent.
    pub(crate) fn want_close(&mut self, work: PendingWork) {
        if self.global.is_some() && work.round > self.version {
            self.close = Some(work);
        }
    }

    /// Requests a rollback, before any other job. A job in progress finishes and its outcome is dropped.
    pub(crate) fn want_roll_back(&mut self, wanted: RollBack) {
        self.version = wanted.version;
        self.close = None;
        self.roll_back = Some(wanted);
        self.checkpoint_due = true;
    }

    pub(crate) fn kept_snapshot(&self, digest: &Digest) -> Option<FramePart> {
        self.snapshots.find(digest)
    }

    /// Requests all kept snapshots, oldest first. While the snapshot of a rounded version is due, the reply waits for it: how a
    /// client gets a version, and so the predictor that it has, must not depend on the time of its call.
    pub(crate) fn want_kept_snapshots(&mut self, reply: oneshot::Sender<Vec<FramePart>>) {
        self.wanted_kept.push(reply);
        self.answer_kept();
    }

    fn answer_kept(&mut self) {
        if self.is_short_snapshot_due() {
            return;
        }
        for reply in self.wanted_kept.drain(..) {
            // The client may have disconnected.
            let _ = reply.send(self.snapshots.parts().to_vec());
        }
    }

    /// Whether the newest version is rounded and its snapshot is not kept yet.
    fn is_short_snapshot_due(&self) -> bool {
        self.rounded.is_some_and(|rounded| rounded.at(self.version).is_some())
            && self.snapshots.of_version(self.version).is_none()
    }

    pub(crate) fn want_snapshot(&mut self, version: u64, reply: oneshot::Sender<Option<FramePart>>) {
        self.wanted.push(SnapshotRequest { version, reply });
    }

    /// Replies where possible and starts the next job, if there is one and none is in progress. Every finished round
    /// must be durable in the store by now.
    pub(crate) fn start(&mut self) {
        let Some(global) = self.global.take() else { return };
        self.answer();
        let keeper = Arc::clone(&self.keeper);
        let job = if let Some(wanted) = self.roll_back.take() {
            tokio::task::spawn_blocking(move || roll_back(global, &keeper, &wanted))
        } else if self.is_short_snapshot_due() {
            // Before the next round closes: afterwards this version is no longer in memory.
            let kept = self.snapshots.clone();
            tokio::task::spawn_blocking(move || snapshot(global, &keeper, kept))
        } else if let Some(wanted) = self.close.take() {
            self.used
                .extend(wanted.updates.iter().map(|update| (wanted.round, update.frame)));
            tokio::task::spawn_blocking(move || close(global, &keeper, &wanted))
        } else if !self.wanted.is_empty() {
            let kept = self.snapshots.clone();
            tokio::task::spawn_blocking(move || snapshot(global, &keeper, kept))
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

    /// Waits for the job in progress, for ever if there is none. Returns the round that it closed, if any. Cancel-safe.
    ///
    /// # Errors
    /// The job's. The model is lost then and a restart recovers it.
    pub(crate) async fn finished(&mut self) -> Result<Option<ClosedRound>, ServeError> {
        let Some(job) = &mut self.job else {
            return std::future::pending().await;
        };
        let done = job.await;
        self.job = None;
        let done = done??;
        self.global = Some(done.global);
        self.used.extend(done.used);
        if self.roll_back.is_some() {
            // The job belongs to a version that was rolled back meanwhile. The next start removes its blob, which no
            // record names.
            return Ok(None);
        }
        if let Some(ClosedRound { round, .. }) = &done.closed {
            self.checkpoint_due |= round % self.keeper.checkpoint_every == 0;
            self.version = *round;
        }
        if let Some(snapshots) = done.snapshots {
            self.snapshots = snapshots;
        }
        Ok(done.closed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// Writes a checkpoint of the newest version, unless there is one: the next start replays no round, so that it keeps the
    /// residual even if its encoder makes other frames. No job may be in progress; those that were requested are dropped.
    pub(crate) async fn end(mut self) -> Result<(), ServeError> {
        let saved = self.keeper.run.checkpoints()?.iter().map(|kept| kept.version).max();
        if self.roll_back.is_some() || saved == Some(self.version) {
            return Ok(());
        }
        self.close = None;
        self.wanted.clear();
        self.checkpoint_due = true;
        self.start();
        if self.is_busy() {
            self.finished().await?;
        }
        Ok(())
    }

    /// Replies to requests for the snapshot that exists, and to those for versions that are no longer the newest.
    fn answer(&mut self) {
        self.answer_kept();
        let version = self.version;
        let snapshot = self.snapshots.of_version(version);
        for request in std::mem::take(&mut self.wanted) {
            if request.version == version && snapshot.is_none() {
                self.wanted.push(request);
            } else {
                // The client may have disconnected.
                let _ = request.reply.send(snapshot.filter(|_| request.version == version));
            }
        }
    }
}

fn close(mut global: Box<GlobalModel>, keeper: &ModelStore, wanted: &PendingWork) -> Result<JobResult, ServeError> {
    let round = wanted.round;
    let result = global.close(round, &wanted.updates, |digest, bytes| keeper.blobs.read(digest, bytes))?;
    if let Some(why) = &result.unused {
        tracing::error!(
            round,
            why,
            "the average was not used, the step is zero: the model would leave the range of f32"
        );
    }
    if let Some(over) = result.over_budget {
        let bits = over.used as f64 * 8.0 / global.layout().len().max(1) as f64;
        tracing::info!(
            round,
            asked = over.asked,
            bytes = over.used,
            bits,
            "the model update is larger than its budget"
        );
    }
    keeper.blobs.put(&result.frame)?;
    Ok(JobResult {
        closed: Some(ClosedRound { round, result }),
        ..global.into()
    })
}

fn roll_back(mut global: Box<GlobalModel>, keeper: &ModelStore, wanted: &RollBack) -> Result<JobResult, ServeError> {
    let model = sum_frames(global.layout(), &keeper.initial, &wanted.steps, |digest, bytes| {
        keeper.blobs.read(digest, bytes)
    })?;
    global.roll_back(wanted.version, model, &wanted.model)?;
    Ok(global.into())
}

/// Makes the snapshot of the current version and removes the oldest one that is kept no longer.
fn snapshot(global: Box<GlobalModel>, keeper: &ModelStore, mut kept: KeptSnapshots) -> Result<JobResult, ServeError> {
    let stale = kept.add(put_snapshot(&global, &keeper.blobs)?);
    kept.store(&keeper.run)?;
    for old in stale.iter().filter(|old| old.digest != keeper.initial) {
        if let Err(error) = keeper.blobs.remove(&old.digest) {
            tracing::warn!(%error, "an old snapshot stays until the next start");
        }
    }
    Ok(JobResult {
        snapshots: Some(kept),
        ..global.into()
    })
}

/// Writes a checkpoint, keeps the previous one, and removes older ones. If updates are not kept, removes those that the
/// older of the two checkpoints includes.
fn checkpoint(
    global: Box<GlobalModel>,
    keeper: &ModelStore,
    used: Vec<(u64, Digest)>,
) -> Result<JobResult, ServeError> {
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
    Ok(JobResult {
        used: rest,
        ..global.into()
    })
}
