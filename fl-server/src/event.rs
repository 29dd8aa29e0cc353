//! What a run tells a display while it goes on.

use std::fmt;

use fl_proto::ClientId;
use serde::{Deserialize, Serialize};

use crate::ledger::Flow;

/// Something happened. Events are for people: nothing that matters depends on their being read.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Clients can come.
    Ready,
    /// No round is open: the run waits for clients. Told whenever it changes.
    Waiting(Waiting),
    /// A round began, or began again with other clients.
    RoundOpened {
        /// The round.
        round: u64,
        /// How often it was tried before.
        attempt: u32,
        /// The clients asked.
        cohort: Vec<ClientId>,
    },
    /// A part of an update arrived. Lost if the channel is full.
    UpdateReceiving {
        /// The client.
        client: ClientId,
        /// Bytes of the frame that are here.
        bytes: u64,
        /// Bytes of the whole frame.
        total: u64,
    },
    /// An update is durable and counted.
    UpdateAccepted {
        /// The client.
        client: ClientId,
        /// Bytes of its frame.
        bytes: u64,
    },
    /// A round is over and its model is ready.
    RoundClosed(RoundSummary),
    /// An update counts for less than its sender claimed, because of the plan's limits.
    Limited {
        /// The round.
        round: u64,
        /// Whose update, and how much of it counts.
        text: String,
    },
    /// All evaluations of one model version, added up so far.
    Evaluated(Evaluated),
    /// The run is over.
    Done,
    /// The run gave up.
    Failed {
        /// The round.
        round: u64,
        /// Why.
        why: String,
    },
    /// Something that a person should look at.
    Alert(String),
    /// Stored data was found to be damaged; the run goes on from what is left.
    Damaged(String),
}

/// Whom a run waits for while no round is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Clients that are connected.
    pub present: usize,
    /// Clients without which no round opens.
    pub min: usize,
    /// Whether they are enough: the round opens when a full cohort is there, or the grace is over.
    pub enough: bool,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { present, min, enough } = self;
        if *enough {
            return write!(
                f,
                "waiting for the grace to end, or more clients: {present} of min {min} present"
            );
        }
        match min.saturating_sub(*present) {
            1 => f.write_str("waiting for 1 more client")?,
            more => write!(f, "waiting for {more} more clients")?,
        }
        write!(f, ": {present} of min {min} present")
    }
}

/// What one round did and cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundSummary {
    /// The round.
    pub round: u64,
    /// Updates counted in it.
    pub updates: usize,
    /// Mean training loss, by examples.
    pub loss: f64,
    /// From its opening to its model.
    pub seconds: f64,
    /// Bytes of all clients, as the ledger has them.
    pub flow: Flow,
    /// Bits of frame that a parameter took in a mean update.
    pub bits_up: f64,
    /// Bits of frame that a parameter took in the server's step.
    pub bits_down: f64,
}

/// Evaluation of one model version by the clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Model version.
    pub version: u64,
    /// Examples of all clients that answered.
    pub examples: u64,
    /// Share of them classified correctly.
    pub accuracy: f64,
    /// Mean loss over them.
    pub loss: f64,
}

/// Frame bits a parameter; 0 where there is nothing to divide by.
pub(crate) fn bits(bytes: u64, frames: usize, parameters: usize) -> f64 {
    let slots = frames as f64 * parameters as f64;
    if slots > 0.0 { 8.0 * bytes as f64 / slots } else { 0.0 }
}
