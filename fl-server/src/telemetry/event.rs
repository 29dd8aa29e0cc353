//! What a run tells a display while it goes on.

use std::fmt;

use fl_proto::ClientId;
use serde::{Deserialize, Serialize};

use crate::accounting::ledger::Flow;
use crate::clock::Millis;

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
    /// Others are asked in place of members of the open round that are absent.
    MembersReplaced {
        /// The round.
        round: u64,
        /// Members that are not waited for any more.
        absent: Vec<ClientId>,
        /// Clients that are asked in their place.
        by: Vec<ClientId>,
    },
    /// A client whose answer the open round lacks has gone, or is back. Lost if the channel is full.
    MemberPresence {
        /// The round.
        round: u64,
        /// The client.
        client: ClientId,
        /// Whether it is back.
        connected: bool,
    },
    /// A client cannot take part. Told at most every ten minutes of the same client. Lost if the channel is full.
    TurnedAway {
        /// Its name, or its address.
        client: String,
        /// One word, as in `fl_joins_refused_total`.
        reason: &'static str,
        /// For a person.
        why: String,
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
    /// Something is wrong that a person must look at.
    Alert(String),
    /// Stored data was found to be damaged; the run goes on from what is left.
    Damaged(String),
    /// The run goes on, but a person may want to change something.
    Warning(String),
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

/// A round that takes updates, and whom it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRound {
    /// The round.
    pub round: u64,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Clients asked.
    pub asked: usize,
    /// Clients that have answered.
    pub answered: usize,
    /// When the round first opened.
    pub opened_ms: Millis,
    /// When the round closes without those that are missing, or is tried again.
    pub until_ms: Millis,
    /// Clients that it waits for.
    pub waits_for: Vec<Missing>,
    /// Clients that it does not wait for any more. Their updates still count.
    pub given_up: Vec<Missing>,
}

/// A client whose answer a round lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The client.
    pub client: String,
    /// Since when it is not connected; absent while it is.
    pub absent_since_ms: Option<Millis>,
}

impl fmt::Display for OpenRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            round,
            attempt,
            asked,
            answered,
            opened_ms,
            until_ms,
            waits_for,
            given_up,
        } = self;
        write!(
            f,
            "round {round}, attempt {attempt}: {answered} of {asked} clients have answered"
        )?;
        write!(f, "; opened {}, waits until {} for ", time(*opened_ms), time(*until_ms))?;
        match waits_for.as_slice() {
            [] => f.write_str("others to connect")?,
            some => f.write_str(&names(some))?,
        }
        if !given_up.is_empty() {
            write!(f, "; no longer for {}", names(given_up))?;
        }
        Ok(())
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.absent_since_ms {
            None => write!(f, "{}", self.client),
            Some(since) => write!(f, "{} (out since {})", self.client, time(since)),
        }
    }
}

/// Names in a list that is written out.
const NAMED: usize = 20;

/// The names, or the first of them and how many more there are.
pub(crate) fn names<T: fmt::Display>(all: &[T]) -> String {
    let mut text = all
        .iter()
        .take(NAMED)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if all.len() > NAMED {
        text += &format!(" and {} more", all.len() - NAMED);
    }
    text
}

/// The time of day, `14:03:20Z`.
pub(crate) fn time(at: Millis) -> String {
    let seconds = at / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
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
