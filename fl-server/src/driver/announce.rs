//! Tells displays and the log what has become durable, and compares the books at every round's end.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Clock, Driver};
use crate::engine::Phase;
use crate::event::{Evaluated, Event, Waiting};
use crate::global::Limited;
use crate::ledger::Flow;
use crate::live::Board;
use crate::record::Record;
use crate::traffic::Sample;

/// Target of what is logged about rounds.
pub(crate) const ROUNDS: &str = module_path!();

/// Where events go: on the board, and to a display if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    pub(crate) channel: Option<mpsc::Sender<Event>>,
    pub(crate) board: Arc<Board>,
    pub(crate) clock: Clock,
}

impl Events {
    /// Tells what may as well be missed.
    pub(crate) fn hint(&self, event: impl FnOnce() -> Event) {
        let event = event();
        self.board.note(&event, (self.clock)());
        if let Some(channel) = &self.channel {
            let _ = channel.try_send(event);
        }
    }

    /// Tells what should not be missed; waits while the channel is full.
    pub(crate) async fn tell(&self, event: Event) {
        self.board.note(&event, (self.clock)());
        if let Some(channel) = &self.channel {
            let _ = channel.send(event).await;
        }
    }
}

impl Driver {
    /// The ledger must be what the sockets carried.
    pub(super) async fn check(&mut self, round: u64, sample: &Sample) {
        if let Some(text) = sample.alert(round) {
            tracing::error!(round, "{text}");
            self.events.tell(Event::Alert(text)).await;
        }
    }

    /// Tells what is durable now.
    pub(super) async fn announce(&mut self, records: &[Record], booked: Option<(u64, Sample)>) {
        for record in records {
            self.history.add(record);
            match record {
                Record::RoundOpened {
                    round, attempt, cohort, ..
                } => {
                    let (round, attempt, cohort) = (*round, *attempt, cohort.iter().cloned().collect());
                    self.events.tell(Event::RoundOpened { round, attempt, cohort }).await;
                }
                Record::UpdateAccepted { client, update, .. } => {
                    let event = Event::UpdateAccepted {
                        client: client.clone(),
                        bytes: update.len,
                    };
                    self.events.tell(event).await;
                }
                Record::RoundClosed { round, .. } => {
                    if let Some((_, sample)) = booked.as_ref().filter(|(booked, _)| booked == round) {
                        self.check(*round, sample).await;
                        self.tracer.round(*round, &self.history, &sample.total());
                        self.round_closed(*round, sample.total()).await;
                    }
                }
                Record::RunDone { .. } => {
                    self.evaluated(self.state.version()).await;
                    self.events.tell(Event::Done).await;
                }
                Record::RunFailed { round, why, at } => {
                    self.tracer.failed(*round, &self.history, why, *at);
                    tracing::error!(round, why, "run failed");
                    self.events
                        .tell(Event::Failed {
                            round: *round,
                            why: why.clone(),
                        })
                        .await;
                }
                Record::RoundClosing { round, at, .. } => self.tracer.closing(*round, *at),
                _ => {}
            }
        }
    }

    /// Tells which updates of a round count for less than their senders claimed.
    pub(super) async fn announce_limited(&mut self, round: u64, limited: &[Limited]) {
        for update in limited {
            let text = update.to_string();
            if !update.is_conspicuous() {
                tracing::debug!(round, client = %update.client, "{text}");
                continue;
            }
            tracing::warn!(round, client = %update.client, "{text}");
            self.events.tell(Event::Limited { round, text }).await;
        }
    }

    /// Tells whom the run waits for, if that has changed.
    pub(super) async fn announce_waiting(&mut self) {
        let waiting = self.waiting();
        if waiting != self.waiting {
            self.waiting = waiting;
            if let Some(waiting) = waiting {
                self.events.tell(Event::Waiting(waiting)).await;
            }
        }
    }

    /// Whom the run waits for, if no round is open.
    pub(super) fn waiting(&self) -> Option<Waiting> {
        matches!(self.state.phase(), Phase::Waiting).then(|| Waiting {
            present: self.present.names.len(),
            min: self.plan.cohort.min,
            // While waiting, the engine wakes for nothing but the end of the grace that the fewest needed began.
            enough: self.state.wake(&self.plan, (self.clock)()).is_some(),
        })
    }

    /// A round's end is also the end of the evaluations of the model that it began with.
    async fn round_closed(&mut self, round: u64, flow: Flow) {
        self.evaluated(round.saturating_sub(1)).await;
        if let Some(summary) = self.history.summary(round, flow, self.parameters) {
            tracing::info!(
                round,
                updates = summary.updates,
                loss = four_digits(summary.loss),
                seconds = four_digits(summary.seconds),
                bytes_up = flow.socket_up,
                bytes_down = flow.socket_down,
                bits_up = four_digits(summary.bits_up),
                bits_down = four_digits(summary.bits_down),
                "round closed"
            );
            self.events.tell(Event::RoundClosed(summary)).await;
        }
    }

    async fn evaluated(&mut self, version: u64) {
        if let Some(evaluated) = self.history.evaluated(version) {
            let Evaluated {
                accuracy,
                loss,
                examples,
                ..
            } = evaluated;
            let (shown, lost) = (four_digits(accuracy), four_digits(loss));
            tracing::info!(version, accuracy = shown, loss = lost, examples, "model evaluated");
            self.events.tell(Event::Evaluated(evaluated)).await;
        }
    }
}

/// A number as people read it in a log: four digits after the point.
fn four_digits(number: f64) -> f64 {
    let rounded = (number * 1e4).round() / 1e4;
    // What is too large to have such digits stays as it is.
    if rounded.is_finite() { rounded } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_the_log_have_four_digits() {
        let shown = [2.302_585_092_994_046, 0.25, 1e-9, -0.123_456, f64::MAX].map(|x| four_digits(x).to_string());
        assert_eq!(shown[..4], ["2.3026", "0.25", "0", "-0.1235"]);
        assert_eq!(shown[4], f64::MAX.to_string());
        assert!(four_digits(f64::NAN).is_nan());
    }
}
