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
    /// Four bytes a value for each client asked, and for each that evaluated the last model.
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
            fedavg_fp32: baseline(subject.parameters, &rounds, last_evaluation(history), &total),
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

/// Clients that fetched the newest model only to evaluate it: while a round is open, whoever evaluates trains as well.
fn last_evaluation(history: &History) -> usize {
    let newest = history.rounds.last_key_value().map_or(0, |(round, _)| *round);
    history.evaluations.get(&newest).map_or(0, |sums| sums.clients)
}

/// Federated averaging in 32 bits: every client asked gets the model, every update is one, and every client that
/// evaluates the last model gets that too.
fn baseline(parameters: usize, rounds: &[RoundLine], evaluated: usize, total: &Flow) -> Baseline {
    let model = 4 * parameters as u64;
    let up = rounds.iter().map(|round| round.updates as u64 * model).sum::<u64>();
    let asked = rounds.iter().map(|round| round.cohort as u64).sum::<u64>();
    let down = (asked + evaluated as u64) * model;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fl_compress::{Digest, Stages};

    use super::*;
    use crate::record::{Accepted, Record};

    fn baseline_of(records: &[Record]) -> (u64, u64) {
        let mut history = History::default();
        records.iter().for_each(|record| history.add(record));
        let subject = Subject {
            run: "r".into(),
            task: "t".into(),
            planned: 2,
            parameters: 100,
        };
        let report = Report::new(&subject, &history, &Ledger::default());
        (report.fedavg_fp32.up, report.fedavg_fp32.down)
    }

    #[test]
    fn the_baseline_counts_the_last_models_evaluation_and_no_other() {
        let (digest, stages, at) = (Digest::of(b""), Stages::default(), 0);
        let clients: BTreeSet<_> = ["a", "b", "c"].map(|name| name.parse().unwrap()).into();
        let mut records = Vec::new();
        let evaluated = |version, client: &fl_proto::ClientId| Record::EvaluationAccepted {
            version,
            client: client.clone(),
            examples: 1,
            loss: 0.0,
            correct: 0,
            at,
        };
        for round in 1..=2 {
            records.push(Record::RoundOpened {
                round,
                attempt: 1,
                cohort: clients.clone(),
                present: 3,
                at,
                deadline: 1,
            });
            records.extend(clients.iter().map(|client| evaluated(round - 1, client)));
            for client in clients.iter().take(2) {
                let update = Accepted::sample(digest);
                let client = client.clone();
                records.push(Record::UpdateAccepted { round, client, update });
            }
            records.push(Record::RoundClosed {
                round,
                frame: digest,
                frame_len: 1,
                stages,
                model: digest,
                at,
            });
        }
        assert_eq!(baseline_of(&records), (4 * 400, 6 * 400));
        records.extend(clients.iter().take(2).map(|client| evaluated(2, client)));
        assert_eq!(baseline_of(&records), (4 * 400, 8 * 400));
    }
}
