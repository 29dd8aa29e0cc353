//! Training in the background. It outlives the connection, because the round may do so too.

use std::sync::Arc;
use std::time::Instant;

use fl_proto::{ModelDigest, Phase, RoundState};
use tokio::sync::{Semaphore, oneshot};

use crate::client::{Asked, ClientActor, ClientState, PendingUpdate};
use crate::error::Error;
use crate::learner::Progress;

/// A training for one round. Dropping it stops the learner.
#[derive(Debug)]
pub(super) struct Training {
    pub(super) round: u64,
    model: ModelDigest,
    asked: Arc<Asked>,
    progress: Arc<Progress>,
    result: oneshot::Receiver<Result<PendingUpdate, Error>>,
}

impl Training {
    /// Starts the learner when the gate has a permit.
    pub(super) fn start(
        actor: &ClientActor,
        gate: &Arc<Semaphore>,
        state: &RoundState,
        progress: Arc<Progress>,
    ) -> Self {
        let (reply, result) = oneshot::channel();
        let (actor, gate, round) = (actor.clone(), Arc::clone(gate), state.round);
        let deadline = state.left.map(|left| Instant::now() + left);
        let shared = Arc::clone(&progress);
        let asked = Arc::new(Asked::new(state.attempt, state.budget));
        let latest = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut reply = reply;
            let permit = tokio::select! {
                permit = gate.acquire_owned() => permit.ok(),
                () = reply.closed() => return,
            };
            let job = move |client: &mut ClientState| {
                let _permit = permit;
                client.train(round, &latest, deadline, &shared)
            };
            let result = actor.call(job).await.and_then(|result| result);
            // If the receiver is gone, the next round finds the update pending.
            let _ = reply.send(result);
        });
        Self {
            round,
            model: state.model,
            asked,
            progress,
            result,
        }
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
        self.asked.renew(state);
    }

    /// The round and the attempt in which the server asks.
    pub(super) fn asked(&self) -> (u64, u32) {
        (self.round, self.asked.attempt())
    }

    /// The result. Cancel safe: the future can be dropped and awaited again until it has completed.
    pub(super) async fn finished(&mut self) -> Result<PendingUpdate, Error> {
        let ended = |_| {
            Err(Error::Crashed(
                "the learner panicked; its message is in the log above".to_owned(),
            ))
        };
        (&mut self.result).await.unwrap_or_else(ended)
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        self.progress.stop();
    }
}
