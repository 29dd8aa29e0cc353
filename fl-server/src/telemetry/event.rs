//! Events of a running server, for displays.

use std::collections::BTreeMap;
use std::fmt;

use fl_proto::ClientId;
use serde::{Deserialize, Serialize};

use crate::accounting::ledger::Flow;
use crate::clock::Millis;

/// An event. Events are for people: the server's behavior does not depend on a reader.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Ready,
    /// No round is open: the run waits for clients. Sent at each change.
    Waiting(Waiting),
    RoundOpened {
        round: u64,
        attempt: u32,
        cohort: Vec<ClientId>,
    },
    /// The open round asks other clients in place of absent members.
    MembersReplaced {
        round: u64,
        absent: Vec<ClientId>,
        by: Vec<ClientId>,
    },
    /// A client left or came back, pauses, or failed in a round. Best effort: dropped if the channel is full.
    Client {
        client: ClientId,
        /// Whether no update is expected of the client for now.
        away: bool,
        /// A line for a person, at most a few of each client in a round.
        line: Option<String>,
    },
    /// A client cannot take part. At most one event in ten minutes for each client. Best effort: dropped if the channel
    /// is full.
    TurnedAway {
        /// Its name, or its address.
        client: String,
        /// One word, as in `fl_joins_refused_total`.
        reason: &'static str,
        /// For a person.
        why: String,
    },
    /// A part of an update arrived. Best effort: dropped if the channel is full.
    UpdateReceiving {
        client: ClientId,
        bytes: u64,
        total: u64,
    },
    /// An update is durable and counted.
    UpdateAccepted {
        client: ClientId,
        bytes: u64,
    },
    /// A round is over and its model is ready.
    RoundClosed(RoundSummary),
    /// An update counts for less than its sender claimed, because of the plan's limits.
    Limited {
        round: u64,
        /// Whose update, and how much of it counts.
        text: String,
    },
    /// The evaluations of one model version so far, summed.
    Evaluated(ModelEvaluation),
    Done,
    Failed {
        round: u64,
        why: String,
    },
    /// An error that a person must act on.
    Alert(String),
    /// Stored data is damaged; the run continues from the rest.
    Damaged(String),
    /// The run continues, but its configuration may need a change.
    Warning(String),
}

/// The clients that a run waits for while no round is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Clients that are connected and not paused.
    pub present: usize,
    /// Such clients that a round needs to open.
    pub min: usize,
    /// Whether `min` clients are connected: the round opens once a full cohort is, or the grace period ends.
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

/// A round that takes updates, and the clients it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRound {
    pub round: u64,
    pub attempt: u32,
    pub asked: usize,
    pub answered: usize,
    pub opened_ms: Millis,
    /// When the round closes without the missing clients, or opens again.
    pub until_ms: Millis,
    pub waits_for: Vec<Missing>,
    /// Clients for which the round no longer waits. Their updates still count.
    pub given_up: Vec<Missing>,
}

/// A client of the cohort without an update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub client: String,
    pub absent_since_ms: Option<Millis>,
}

impl fmt::Display for OpenRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "round {}, attempt {}: {} of {} clients have answered; opened {}, waits until {} for ",
            self.round,
            self.attempt,
            self.answered,
            self.asked,
            time(self.opened_ms),
            time(self.until_ms)
        )?;
        match self.waits_for.as_slice() {
            [] => f.write_str("others to connect")?,
            some => f.write_str(&names(some))?,
        }
        if !self.given_up.is_empty() {
            write!(f, "; no longer for {}", names(&self.given_up))?;
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

/// A cohort may have 100,000 clients, and a list of them is read by a person.
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundSummary {
    pub round: u64,
    pub updates: usize,
    /// Mean training loss, by examples.
    pub loss: f64,
    /// From the round's opening to its model.
    pub seconds: f64,
    /// Bytes of all clients, from the ledger.
    pub flow: Flow,
    /// Frame bits for each parameter, mean over the updates.
    pub bits_up: f64,
    /// Frame bits for each parameter, in the model update.
    pub bits_down: f64,
    pub metrics: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelEvaluation {
    pub version: u64,
    /// Examples of all clients that answered.
    pub examples: u64,
    /// Share of examples classified correctly, of the clients whose model classifies; `None` without any.
    pub accuracy: Option<f64>,
    /// The exponential of the loss, if the model of some client does not classify and none reports `rmse`.
    pub perplexity: Option<f64>,
    /// Mean loss over the examples.
    pub loss: f64,
    pub metrics: BTreeMap<String, f64>,
}

impl fmt::Display for ModelEvaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(accuracy) = self.accuracy {
            write!(f, "accuracy {accuracy:.4}, ")?;
        }
        if let Some(perplexity) = self.perplexity {
            write!(f, "perplexity {}, ", short(perplexity))?;
        }
        write!(
            f,
            "loss {}{} on {} examples",
            short(self.loss),
            MetricList(&self.metrics),
            self.examples
        )
    }
}

/// Metrics after other figures: `, top5 0.9300`.
pub(crate) struct MetricList<'a>(pub(crate) &'a BTreeMap<String, f64>);

impl fmt::Display for MetricList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, mean)| write!(f, ", {name} {}", short(*mean)))
    }
}

/// Four digits after the point, or an exponent where they would say nothing.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e-3..1e6 => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

/// Frame bits for each parameter; 0 without parameters or frames.
pub(crate) fn bits(bytes: u64, frames: usize, parameters: usize) -> f64 {
    let slots = frames as f64 * parameters as f64;
    if slots > 0.0 { 8.0 * bytes as f64 / slots } else { 0.0 }
}

/// A client that is connected and takes part in no round for now, because of the conditions of its device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PausedClient {
    pub(crate) client: String,
    pub(crate) reason: String,
    /// When the client expects to be available; `None` if it does not know.
    pub(crate) until_ms: Option<Millis>,
}

impl PausedClient {
    pub(crate) fn what(&self) -> String {
        let until = self.until_ms.map(|until| format!(" until {} at least", time(until)));
        format!("is paused{}: {}", until.unwrap_or_default(), self.reason)
    }
}

impl fmt::Display for PausedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.client, self.what())
    }
}
