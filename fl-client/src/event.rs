//! What a client tells whoever watches it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fl_compress::Digest;
use fl_proto::{ClientId, RunName};

use crate::learner::{Evaluation, Progress};

/// One thing that happened. Events are for people and for measuring: nothing depends on them.
#[derive(Debug, Clone)]
pub enum Event {
    /// Joined the run: the client is ready.
    Connected {
        /// The client's name, as the server reads it from the certificate.
        client: ClientId,
        /// The run.
        run: RunName,
        /// Its task.
        task: String,
        /// Its number of rounds.
        rounds: u64,
        /// Tells it from others of its name.
        instance: Digest,
    },
    /// The run moved to another round.
    Round {
        /// The round, from 1.
        round: u64,
        /// Whether this client is in the cohort.
        selected: bool,
    },
    /// The model is being brought to a version.
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
        /// How far it is.
        progress: Arc<Progress>,
    },
    /// The update is being compressed.
    Encoding {
        /// The round.
        round: u64,
    },
    /// The update is compressed and safe on disk.
    Encoded {
        /// The round.
        round: u64,
        /// Bytes of its frame.
        bytes: u64,
    },
    /// The update is on its way.
    Sending {
        /// The round.
        round: u64,
        /// Bytes of the frame that are still to be sent.
        bytes: u64,
    },
    /// The fate of an update is known.
    Sent {
        /// The round.
        round: u64,
        /// Bytes of the whole frame.
        bytes: u64,
        /// What became of it.
        verdict: Sent,
    },
    /// A model version was evaluated on this client's held-out examples.
    Evaluated {
        /// The version.
        version: u64,
        /// The result.
        evaluation: Evaluation,
    },
    /// The client does not take part in this round, and why.
    LeftRound {
        /// The round.
        round: u64,
        /// Why.
        why: String,
    },
    /// The run gave up; the client waits for the server to try again.
    Failed {
        /// What the server says.
        message: String,
    },
    /// Bytes passed on the client's sockets, counted under TLS. Every byte is told once: when the run has moved to another
    /// round, and when a connection has ended. So a round in which connections broke is told several times.
    Traffic {
        /// The round in which they passed, from 1; 0 if the server has named none. Joining belongs to the round that is
        /// heard of first.
        round: u64,
        /// Bytes written since the last was told.
        sent: u64,
        /// Bytes read.
        received: u64,
    },
    /// The connection was lost or could not be made.
    Disconnected {
        /// Why, and what to do.
        why: String,
        /// When the client tries again.
        retry_in: Duration,
    },
    /// The run is over.
    Done {
        /// The last round.
        round: u64,
    },
}

/// What became of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// Counted in its round.
    Accepted,
    /// Not counted: where the memory is error feedback, its content goes into a later update.
    Refused {
        /// What the server says.
        message: String,
    },
}

/// Where events go. Called from the client's tasks, so it must not block.
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
