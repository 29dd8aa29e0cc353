//! Training in the background: it outlives the connection, because the round may too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fl_compress::Digest;
use fl_proto::{Phase, RoundState};
use tokio::sync::{Semaphore, oneshot};

use crate::work::Outgoing;
use crate::worker::Worker;
use crate::{Error, Progress};

/// A learner at work for one round. Dropping this tells the learner to stop.
#[derive(Debug)]
pub(super) struct Training {
    pub(super) round: u64,
    model: Digest,
    /// The attempt in which the client is asked now.
    attempt: Arc<AtomicU32>,
    progress: Arc<Progress>,
    result: oneshot::Receiver<Result<Outgoing, Error>>,
}

impl Training {
    /// Starts the learner as soon as the gate lets it.
    pub(super) fn start(worker: &Worker, gate: &Arc<Semaphore>, state: &RoundState, progress: Arc<Progress>) -> Self {
        let (reply, result) = oneshot::channel();
        let (worker, gate, round) = (worker.clone(), Arc::clone(gate), state.round);
        let shared = Arc::clone(&progress);
        let attempt = Arc::new(AtomicU32::new(state.attempt));
        let asked_in = Arc::clone(&attempt);
        tokio::spawn(async move {
            let mut reply = reply;
            let permit = tokio::select! {
                permit = gate.acquire_owned() => permit.ok(),
                () = reply.closed() => return,
            };
            let job = move |work: &mut crate::work::Work| {
                let _permit = permit;
                work.train(round, &asked_in, &shared)
            };
            let result = worker.call(job).await.and_then(|result| result);
            // If nobody waits any more, a frame that was made is found pending at the next round.
            let _ = reply.send(result);
        });
        Self {
            round,
            model: state.model,
            attempt,
            progress,
            result,
        }
    }

    /// Whether its update could still count.
    pub(super) fn is_for(&self, state: &RoundState) -> bool {
        state.phase == Phase::Training
            && state.selected
            && state.accepted.is_none()
            && (self.round, self.model) == (state.round, state.model)
    }

    /// The client was asked again: an update that is not encoded yet will be one of that attempt.
    pub(super) fn asked_in(&self, attempt: u32) {
        self.attempt.store(attempt, Ordering::Release);
    }

    /// The round and the attempt in which the client is asked.
    pub(super) fn asked(&self) -> (u64, u32) {
        (self.round, self.attempt.load(Ordering::Acquire))
    }

    /// What came of it. Can be dropped and awaited again, until it has completed.
    pub(super) async fn finished(&mut self) -> Result<Outgoing, Error> {
        let ended = |_| {
            Err(Error::Crashed(
                "the learner panicked; what it said stands above".to_owned(),
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
