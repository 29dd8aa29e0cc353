//! The live status: what the page of a running server shows and its records do not hold, such as the progress of
//! uploads, recent events and alerts.
//!
//! For displays and metrics only: no decision depends on it. The lock guards these few values and is never held across
//! an await.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use fl_proto::ClientId;
use fl_report::size;
use serde::Serialize;

use crate::accounting::ledger::{Direction, Fidelity, Flow};
use crate::clock::Millis;
use crate::lock::lock;
use crate::telemetry::event::{Event, ModelEvaluation, RoundSummary, names};
use crate::telemetry::turned_away::{TurnedAwayList, TurnedFor};

// Both lists are copied for every snapshot of the page, once a second.
const EVENTS: usize = 200;
const ALERTS: usize = 50;
/// Clients whose uploads are kept, at most: more than any federation that one server serves.
const CLIENTS: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LogEntry {
    pub(crate) at_ms: Millis,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct StatusSnapshot {
    /// Uploads of the open round: bytes received, and bytes in total.
    pub(crate) uploads: BTreeMap<ClientId, (u64, u64)>,
    pub(crate) events: VecDeque<LogEntry>,
    pub(crate) alerts: VecDeque<LogEntry>,
    pub(crate) closed: RoundTotals,
    pub(crate) evaluated: Option<ModelEvaluation>,
    pub(crate) turned: TurnedAwayList,
    /// Figures of the frames of the newest round that this process has closed.
    pub(crate) tensors: Arc<[TensorGauge]>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RoundTotals {
    pub(crate) rounds: u64,
    pub(crate) updates: u64,
    pub(crate) refused: u64,
    pub(crate) seconds: f64,
    pub(crate) flow: Flow,
    pub(crate) alerts: u64,
    pub(crate) warnings: u64,
    pub(crate) last: Option<RoundSummary>,
}

/// The fidelity of the newest frames of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TensorGauge {
    pub(crate) direction: Direction,
    /// Name of the tensor, or the number of small tensors in the section.
    pub(crate) tensor: String,
    /// Share of the values that are not zero.
    pub(crate) density: f64,
    /// Bits of the section's frames for each of its parameters.
    pub(crate) bits: f64,
    /// Mean rank, of the frames in which the section has one.
    pub(crate) rank: Option<f64>,
    /// Entropy of the energy in nats: of the aggregate of the updates, or of the model update.
    pub(crate) entropy: Option<f64>,
    /// Sums over the frames that carried figures.
    pub(crate) fidelity: Option<Fidelity>,
    /// Rounds in a row, up to this, in which the section was starved.
    pub(crate) starved: u32,
}

impl TensorGauge {
    pub(crate) fn cosine(&self) -> Option<f64> {
        self.fidelity?.mean_cosine()
    }
}

#[derive(Debug, Default)]
pub(crate) struct LiveStatus(Mutex<StatusSnapshot>);

impl LiveStatus {
    pub(crate) fn known(&self) -> StatusSnapshot {
        lock(&self.0).clone()
    }

    /// A value that changes when an update is counted or a model is evaluated.
    pub(crate) fn progress(&self) -> (u64, Option<u64>) {
        let known = lock(&self.0);
        (known.closed.updates, known.evaluated.as_ref().map(|seen| seen.version))
    }

    pub(crate) fn note(&self, event: &Event, now: Millis) {
        let mut known = lock(&self.0);
        match event {
            Event::UpdateReceiving { client, bytes, total } => {
                if known.uploads.len() < CLIENTS || known.uploads.contains_key(client) {
                    known.uploads.insert(client.clone(), (*bytes, *total));
                }
                return;
            }
            Event::RoundOpened { .. } => known.uploads.clear(),
            Event::UpdateAccepted { client, bytes } => {
                known.uploads.insert(client.clone(), (*bytes, *bytes));
                known.closed.updates += 1;
            }
            Event::RoundClosed(summary) => {
                let closed = &mut known.closed;
                closed.rounds += 1;
                closed.seconds += summary.seconds;
                closed.flow.add(&summary.flow);
                closed.last = Some(summary.clone());
            }
            Event::Evaluated(evaluated) => known.evaluated = Some(evaluated.clone()),
            // A client on a bad link would fill the list.
            Event::Client { .. } => return,
            Event::Alert(_) => known.closed.alerts += 1,
            Event::Warning(_) => known.closed.warnings += 1,
            Event::Ready
            | Event::Waiting(_)
            | Event::Limited { .. }
            | Event::Done
            | Event::Failed { .. }
            | Event::MembersReplaced { .. }
            | Event::Damaged(_)
            | Event::TurnedAway { .. } => {}
        }
        let (kind, text) = words(event);
        let note = LogEntry { at_ms: now, kind, text };
        if matches!(event, Event::Alert(_) | Event::Damaged(_) | Event::Warning(_)) {
            push(&mut known.alerts, note.clone(), ALERTS);
        }
        push(&mut known.events, note, EVENTS);
    }

    pub(crate) fn refused(&self) {
        lock(&self.0).closed.refused += 1;
    }

    pub(crate) fn turned_away(&self, client: &str, reason: TurnedFor, why: &str, now: Millis) -> bool {
        lock(&self.0).turned.add(client, reason, why, now)
    }

    pub(crate) fn tensors(&self, gauges: Vec<TensorGauge>) {
        lock(&self.0).tensors = gauges.into();
    }
}

fn push(notes: &mut VecDeque<LogEntry>, note: LogEntry, most: usize) {
    notes.truncate(most - 1);
    notes.push_front(note);
}

fn words(event: &Event) -> (&'static str, String) {
    match event {
        Event::Ready => ("ready", "clients can come".to_owned()),
        Event::Waiting(waiting) => ("waiting", waiting.to_string()),
        Event::RoundOpened { round, attempt, cohort } => {
            let asked = &cohort.len();
            let again = match attempt {
                0 | 1 => String::new(),
                attempt => format!(" again, attempt {attempt}"),
            };
            let clients = if *asked == 1 { "client" } else { "clients" };
            ("round", format!("round {round} opened{again}: {asked} {clients} asked"))
        }
        Event::UpdateReceiving { client, bytes, total } => {
            ("update", format!("{client}: {} of {}", size(*bytes), size(*total)))
        }
        Event::UpdateAccepted { client, bytes } => ("update", format!("update of {client}: {}", size(*bytes))),
        Event::RoundClosed(summary) => (
            "round",
            format!(
                "round {} closed: {} updates, {} up and {} down on the sockets, {:.1} s",
                summary.round,
                summary.updates,
                size(summary.flow.socket_up),
                size(summary.flow.socket_down),
                summary.seconds
            ),
        ),
        Event::Evaluated(seen) => ("evaluation", format!("model {}: {seen}", seen.version)),
        Event::Limited { round, text } => ("limited", format!("round {round}: {text}")),
        Event::MembersReplaced { round, absent, by } => (
            "round",
            format!("round {round} asks {} in place of {}", names(by), names(absent)),
        ),
        Event::Client { client, .. } => ("client", client.to_string()),
        Event::TurnedAway { client, reason, why } => ("turned-away", format!("{client} ({reason}): {why}")),
        Event::Done => ("done", "the run is over".to_owned()),
        Event::Failed { round, why } => ("failed", format!("the run gave up in round {round}: {why}")),
        Event::Alert(text) => ("alert", text.clone()),
        Event::Damaged(text) => ("damaged", text.clone()),
        Event::Warning(text) => ("warning", text.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_comes_first_and_old_ones_go() {
        let board = LiveStatus::default();
        for round in 0..300 {
            let event = Event::RoundOpened {
                round,
                attempt: 1,
                cohort: Vec::new(),
            };
            board.note(&event, round);
            board.note(&Event::Alert(format!("{round}")), round);
        }
        let known = board.known();
        assert_eq!((known.events.len(), known.alerts.len()), (EVENTS, ALERTS));
        assert_eq!((known.events[0].kind, known.alerts[0].text.as_str()), ("alert", "299"));
        assert_eq!(known.closed.alerts, 300);
    }

    #[test]
    fn a_new_round_forgets_how_far_the_uploads_of_the_last_were() {
        let board = LiveStatus::default();
        let client: ClientId = "anna".parse().unwrap();
        let part = Event::UpdateReceiving {
            client: client.clone(),
            bytes: 5,
            total: 10,
        };
        board.note(&part, 0);
        assert_eq!(board.known().uploads[&client], (5, 10));
        assert!(board.known().events.is_empty(), "parts are too many for the log");
        let opened = Event::RoundOpened {
            round: 2,
            attempt: 2,
            cohort: vec![client],
        };
        board.note(&opened, 7);
        let known = board.known();
        assert!(known.uploads.is_empty());
        assert_eq!(known.events[0].text, "round 2 opened again, attempt 2: 1 client asked");
    }
}
