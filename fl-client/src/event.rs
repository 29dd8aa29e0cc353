//! Events of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fl_compress::Digest;
use fl_proto::{ClientId, ModelDigest, RunName};

use crate::learner::{Evaluation, Progress};

/// Something that happened. Events are for people and for measurements; nothing depends on them.
#[derive(Debug, Clone)]
pub enum Event {
    /// The client has joined the run and is ready.
    Connected {
        /// The client's name in its certificate.
        client: ClientId,
        /// The run.
        run: RunName,
        /// Its task.
        task: String,
        /// Its number of rounds.
        rounds: u64,
        /// Identifies the run among runs of the same name.
        instance: Digest,
    },
    /// The run moved to another round.
    Round {
        /// The round, from 1.
        round: u64,
        /// Whether this client is in the cohort.
        selected: bool,
    },
    /// The client fetches the frozen tensors of the run's model.
    FetchingBase {
        /// Bytes that an earlier fetch brought.
        held: u64,
        /// All bytes.
        bytes: u64,
    },
    /// The frozen tensors were fetched and have the right digest.
    FetchedBase {
        /// All bytes.
        bytes: u64,
    },
    /// The client fetches a model version.
    Fetching {
        /// The version.
        version: u64,
    },
    /// The model was fetched.
    Fetched {
        /// The version.
        version: u64,
    },
    /// The learner was started.
    Training {
        /// The round.
        round: u64,
        /// Progress of the training.
        progress: Arc<Progress>,
    },
    /// The update is being compressed.
    Encoding {
        /// The round.
        round: u64,
    },
    /// The update is compressed and durable.
    Encoded {
        /// The round.
        round: u64,
        /// Bytes of its frame.
        bytes: u64,
    },
    /// The upload of the update has started.
    Sending {
        /// The round.
        round: u64,
        /// Bytes of the frame that are still to be sent.
        bytes: u64,
    },
    /// The server has answered an update.
    Sent {
        /// The round.
        round: u64,
        /// Bytes of the whole frame.
        bytes: u64,
        /// The answer.
        verdict: Verdict,
    },
    /// A model version was evaluated on this client's held-out examples.
    Evaluated {
        /// The version.
        version: u64,
        /// Its digest, with which the client compared its own model.
        model: ModelDigest,
        /// The result.
        evaluation: Evaluation,
    },
    /// The client could not evaluate a model version, and why. If the server asks for an update too, the client still trains.
    NotEvaluated {
        /// The version.
        version: u64,
        /// Why.
        why: String,
    },
    /// The client does not take part in this round, and why.
    LeftRound {
        /// The round.
        round: u64,
        /// Why.
        why: String,
    },
    /// The run failed; the client waits for the server to try again.
    Failed {
        /// The server's message.
        message: String,
    },
    /// Bytes on the client's sockets, counted under TLS. Every byte is reported once: when the run has moved to another round,
    /// or when a connection has ended. A round in which connections broke is therefore reported several times.
    Traffic {
        /// The round of the bytes, from 1; 0 if the server has named none. Bytes of joining belong to the first round that the
        /// server names.
        round: u64,
        /// Bytes written since the last report.
        sent: u64,
        /// Bytes read since the last report.
        received: u64,
    },
    /// The connection was lost or could not be made.
    Disconnected {
        /// Why, and what to do.
        why: String,
        /// Time until the next attempt.
        retry_in: Duration,
    },
    /// The run is over.
    Done {
        /// The last round.
        round: u64,
    },
}

/// The server's answer to an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The update counts in its round.
    Accepted,
    /// The update does not count. With error feedback, its content becomes part of a later update.
    Refused {
        /// The server's message.
        message: String,
    },
}

/// Receives events. It is called from the client's tasks and must not block.
#[derive(Clone)]
pub(crate) struct Sink(Arc<dyn Fn(Event) + Send + Sync>);

impl Sink {
    pub(crate) fn new(sink: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    pub(crate) fn send(&self, event: Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}
