//! The report of a run: every round's cost and gain, and what fp32 federated averaging would have sent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::Evaluated;
use crate::history::{End, History, Sizes};
use crate::ledger::{Flow, Ledger};

/// What the report needs to know of a run besides its records and its ledger.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its name.
    pub run: String,
    /// Its task.
    pub task: String,
    /// Rounds planned.
    pub planned: u64,
    /// Values of the model.
    pub parameters: usize,
}

/// A run's costs and gains. This is also the JSON that `report --format json` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The run.
    pub run: String,
    /// Its task.
    pub task: String,
    /// `waiting`, `round N`, `done` or `failed in round N: why`.
    pub state: String,
    /// Rounds planned.
    pub planned: u64,
    /// Values of the model.
    pub parameters: usize,
    /// Newest model version.
    pub version: u64,
    /// Its digest.
    pub model: String,
    /// Rounds that closed, and the one that is open.
    pub rounds: Vec<RoundLine>,
    /// Clients by name; `-` stands for connections that never said who they were.
    pub clients: Vec<ClientLine>,
    /// Bytes of the whole run.
    pub total: Flow,
    /// What the sockets' meter counted, up and down.
    pub meter: (u64, u64),
    /// Whether the ledger is what the meter counted, to the byte.
    pub balanced: bool,
    /// What fp32 federated averaging would have sent for the same cohorts and rounds.
    pub fedavg_fp32: Baseline,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundLine {
    /// The round; its model is the version of the same number.
    pub round: u64,
    /// Whether its model is ready.
    pub closed: bool,
    /// Times it was opened.
    pub attempts: u32,
    /// Clients asked.
    pub cohort: usize,
    /// Updates counted.
    pub updates: usize,
    /// Mean training loss.
    pub loss: f64,
    /// Evaluation of the round's model, if any.
    pub evaluation: Option<Evaluated>,
    /// From its opening to its model.
    pub seconds: f64,
    /// Bits of frame a parameter took in a mean update.
    pub bits_up: f64,
    /// And in the server's step.
    pub bits_down: f64,
    /// Bytes of its updates after each stage.
    pub uplink: Sizes,
    /// Bytes of its step after each stage.
    pub downlink: Sizes,
    /// Bytes moved while it was open.
    pub flow: Flow,
    /// Digest of its model.
    pub model: String,
}

/// One client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientLine {
    /// Its name.
    pub client: String,
    /// Updates counted.
    pub updates: usize,
    /// Examples behind them.
    pub examples: u64,
    /// Seconds of training.
    pub train_seconds: f64,
    /// Seconds of encoding.
    pub encode_seconds: f64,
    /// Its bytes.
    pub flow: Flow,
}

/// What another way of training would have sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Four bytes a value for each update.
    pub up: u64,
    /// Four bytes a value for each client asked.
    pub down: u64,
    /// Its bytes over the bytes of all frames sent.
    pub frames_ratio: f64,
    /// Its bytes over everything on the sockets.
    pub socket_ratio: f64,
}

impl Report {
    /// Adds up a run.
    pub fn new(subject: &Subject, history: &History, ledger: &Ledger) -> Self {
        let rounds = history
            .rounds
            .keys()
            .map(|&round| line(subject, history, ledger, round))
            .collect::<Vec<_>>();
        let newest = history
            .rounds
            .iter()
            .rev()
            .find_map(|(round, sums)| sums.closed.map(|step| (*round, step.model)));
        let (version, model) = match newest {
            Some((round, model)) => (round, model.to_string()),
            None => (0, history.initial.map(|model| model.to_string()).unwrap_or_default()),
        };
        let total = ledger.total();
        Self {
            run: subject.run.clone(),
            task: subject.task.clone(),
            state: state(history),
            planned: subject.planned,
            parameters: subject.parameters,
            version,
            model,
            fedavg_fp32: baseline(subject.parameters, &rounds, &total),
            rounds,
            clients: clients(history, ledger),
            total,
            meter: ledger.metered(),
            balanced: ledger.is_balanced(),
        }
    }
}

pub(crate) fn state(history: &History) -> String {
    match (&history.end, history.rounds.last_key_value()) {
        (Some(End::Done), _) => "done".to_owned(),
        (Some(End::Failed { round, why }), _) => format!("failed in round {round}: {why}"),
        (None, Some((round, sums))) if sums.closed.is_some() => format!("after round {round}"),
        (None, Some((round, _))) => format!("round {round}"),
        (None, None) => "waiting".to_owned(),
    }
}

fn line(subject: &Subject, history: &History, ledger: &Ledger, round: u64) -> RoundLine {
    let sums = &history.rounds[&round];
    let flow = ledger.round(round);
    let summary = history.summary(round, flow, subject.parameters);
    RoundLine {
        round,
        closed: sums.closed.is_some(),
        attempts: sums.attempts,
        cohort: sums.cohort,
        updates: sums.updates,
        loss: if sums.examples > 0 {
            sums.loss / sums.examples as f64
        } else {
            0.0
        },
        evaluation: history.evaluated(round),
        seconds: summary.map_or(0.0, |summary| summary.seconds),
        bits_up: crate::event::bits(sums.uplink.framed, sums.updates, subject.parameters),
        bits_down: summary.map_or(0.0, |summary| summary.bits_down),
        uplink: sums.uplink,
        downlink: sums.closed.map(|step| step.downlink).unwrap_or_default(),
        flow,
        model: sums.closed.map(|step| step.model.to_string()).unwrap_or_default(),
    }
}

fn clients(history: &History, ledger: &Ledger) -> Vec<ClientLine> {
    let mut flows: BTreeMap<_, Flow> = ledger.clients();
    for client in history.clients.keys() {
        flows.entry(Some(client.clone())).or_default();
    }
    let line = |(client, flow): (Option<fl_proto::ClientId>, Flow)| {
        let sums = client
            .as_ref()
            .and_then(|client| history.clients.get(client))
            .copied()
            .unwrap_or_default();
        ClientLine {
            client: client.map_or_else(|| "-".to_owned(), |client| client.to_string()),
            updates: sums.updates,
            examples: sums.examples,
            train_seconds: sums.train_ms as f64 / 1000.0,
            encode_seconds: sums.encode_ms as f64 / 1000.0,
            flow,
        }
    };
    flows.into_iter().map(line).collect()
}

/// Federated averaging in 32 bits: every client asked gets the model, every update is one.
fn baseline(parameters: usize, rounds: &[RoundLine], total: &Flow) -> Baseline {
    let model = 4 * parameters as u64;
    let up = rounds.iter().map(|round| round.updates as u64 * model).sum::<u64>();
    let down = rounds.iter().map(|round| round.cohort as u64 * model).sum::<u64>();
    let ratio = |sent: u64| {
        if sent > 0 {
            (up + down) as f64 / sent as f64
        } else {
            0.0
        }
    };
    Baseline {
        up,
        down,
        frames_ratio: ratio(total.frames_up() + total.frames_down()),
        socket_ratio: ratio(total.socket_up + total.socket_down),
    }
}
