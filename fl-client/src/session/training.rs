//! Training in the background. It outlives the connection, because the round may do so too.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fl_proto::{ModelDigest, Phase, RoundState};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::pause::{PauseLimits, pause_and_resume};
use crate::client::{ClientActor, PendingUpdate, RoundRequest};
use crate::conditions::Monitor;
use crate::error::Error;
use crate::learner::Progress;

/// A training for one round. Dropping it stops the learner.
#[derive(Debug)]
pub(super) struct Training {
    pub(super) round: u64,
    model: ModelDigest,
    asked: watch::Sender<RoundRequest>,
    progress: Arc<Progress>,
    result: oneshot::Receiver<Result<PendingUpdate, Error>>,
    gave_up: Arc<OnceLock<String>>,
    limits: PauseLimits,
    pauses: JoinHandle<()>,
}

impl Training {
    /// Starts the learner when the gate has a permit. It pauses while `monitor` says that the client is not available, at most
    /// `max_pause` at once. `last`: how long the last training took.
    pub(super) fn start(
        actor: &ClientActor,
        gate: &Arc<Semaphore>,
        state: &RoundState,
        progress: Arc<Progress>,
        (monitor, max_pause, last): (&Monitor, Duration, Option<Duration>),
    ) -> Self {
        let (reply, result) = oneshot::channel();
        let actor = actor.clone();
        let gate = Arc::clone(gate);
        let round = state.round;
        let deadline = state.left.map(|left| Instant::now() + left);
        let limits = PauseLimits {
            max: max_pause,
            deadline,
            last,
        };
        let gave_up = Arc::default();
        let pauses = pause_and_resume(monitor.clone(), Arc::clone(&progress), limits, Arc::clone(&gave_up));
        let pauses = tokio::spawn(pauses);
        let shared = Arc::clone(&progress);
        let (asked, latest) = watch::channel(RoundRequest::from(state));
        tokio::spawn(async move {
            let mut reply = reply;
            let permit = tokio::select! {
                permit = gate.acquire_owned() => permit.ok(),
                () = reply.closed() => return,
            };
            let result = actor
                .call(move |client| {
                    let _permit = permit;
                    client.train(round, &latest, deadline.map(Instant::into_std), &shared)
                })
                .await
                .and_then(|result| result);
            // If the receiver is gone, the next round finds the update pending.
            let _ = reply.send(result);
        });
        Self {
            round,
            model: state.model,
            asked,
            progress,
            result,
            gave_up,
            limits,
            pauses,
        }
    }

    /// From now on, the training pauses while `monitor` says that the client is not available, at most `max_pause` at once.
    pub(super) fn follow(&mut self, monitor: &Monitor, max_pause: Duration) {
        self.pauses.abort();
        self.limits.max = max_pause;
        if monitor.decision().is_available() {
            self.progress.resume();
        }
        let progress = Arc::clone(&self.progress);
        let gave_up = Arc::clone(&self.gave_up);
        self.pauses = tokio::spawn(pause_and_resume(monitor.clone(), progress, self.limits, gave_up));
    }

    /// Whether the update could still count.
    pub(super) fn is_for(&self, state: &RoundState) -> bool {
        state.phase == Phase::Training
            && state.selected
            && state.accepted.is_none()
            && (self.round, self.model) == (state.round, state.model)
    }

    /// The server asked again: an update that is not encoded yet will belong to this attempt, and have this budget.
    pub(super) fn asked_again(&self, state: &RoundState) {
        self.asked.send_replace(state.into());
    }

    pub(super) fn gave_up(&self) -> Option<String> {
        self.gave_up.get().cloned()
    }

    /// Round, attempt and result. Cancel safe: the future can be dropped and awaited again until it has completed.
    pub(super) async fn finished(&mut self) -> ((u64, u32), Result<PendingUpdate, Error>) {
        let result = (&mut self.result).await;
        let asked = (self.round, self.asked.borrow().attempt);
        (asked, result.unwrap_or_else(|_| Err(Error::learner_panicked())))
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        self.pauses.abort();
        self.progress.stop();
    }
}
