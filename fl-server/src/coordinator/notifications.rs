//! Sends what has become durable to displays and the log, and compares ledger and sockets at the end of every round.

use crate::telemetry::trace::RoundFacts;
use std::collections::BTreeMap;

use fl_cli::log::four_digits;
use fl_proto::ClientId;

use crate::accounting::ledger::Flow;
use crate::accounting::sample::Sample;
use crate::coordinator::actor::Coordinator;
use crate::coordinator::fidelity::RoundFidelity;
use crate::state_machine::Phase;
use crate::storage::record::Record;
use crate::telemetry::event::{Event, Missing, ModelEvaluation, OpenRound, Waiting};

/// Lines about one client in a round, without the one that says that there are more.
const LINES: u32 = 4;

/// Target of what is logged about rounds.
pub(crate) const ROUNDS: &str = module_path!();

impl Coordinator {
    /// Raises an alert if the ledger differs from the sockets.
    pub(super) async fn check(&mut self, round: u64, sample: &Sample) {
        if let Some(text) = sample.alert(round) {
            tracing::error!(round, "{text}");
            self.events.tell(Event::Alert(text)).await;
        }
    }

    pub(super) async fn announce_fidelity(&mut self, RoundFidelity { gauges, warnings }: RoundFidelity) {
        self.events.status.tensors(gauges);
        for text in warnings {
            tracing::warn!("{text}");
            self.events.tell(Event::Warning(text)).await;
        }
    }

    pub(super) async fn announce(&mut self, records: &[Record], booked: Option<(u64, Sample)>) {
        for record in records {
            self.history.add(record);
            match record {
                Record::RoundOpened {
                    round, attempt, cohort, ..
                } => {
                    self.said.clear();
                    let event = Event::RoundOpened {
                        round: *round,
                        attempt: *attempt,
                        cohort: cohort.iter().cloned().collect(),
                    };
                    self.events.tell(event).await;
                }
                Record::MembersReplaced { round, absent, by, .. } => {
                    let event = Event::MembersReplaced {
                        round: *round,
                        absent: absent.iter().cloned().collect(),
                        by: by.iter().cloned().collect(),
                    };
                    self.events.tell(event).await;
                }
                Record::UpdateAccepted { client, update, .. } => {
                    let event = Event::UpdateAccepted {
                        client: client.clone(),
                        bytes: update.len,
                    };
                    self.events.tell(event).await;
                }
                Record::RoundClosed {
                    round,
                    step,
                    limited,
                    at,
                } => {
                    for limited in limited.iter().filter(|limited| limited.is_conspicuous()) {
                        let text = limited.to_string();
                        tracing::warn!(round, client = %limited.client, "{text}");
                        self.events.tell(Event::Limited { round: *round, text }).await;
                    }
                    if let Some((_, sample)) = booked.as_ref().filter(|(booked, _)| booked == round) {
                        self.check(*round, sample).await;
                        if let Some(facts) = self.facts(*round) {
                            self.tracer.round(&facts, *at, step.frame_len, &sample.total());
                        }
                        self.round_closed(*round, sample.total()).await;
                    }
                }
                Record::RunDone { .. } => {
                    self.evaluated(self.state.version()).await;
                    self.events.tell(Event::Done).await;
                }
                Record::RunFailed { round, why, at } => {
                    if let Some(facts) = self.facts(*round) {
                        self.tracer.failed(&facts, why, *at);
                    }
                    tracing::error!(round, why, "run failed");
                    let event = Event::Failed {
                        round: *round,
                        why: why.clone(),
                    };
                    self.events.tell(event).await;
                }
                Record::RoundClosing { round, at, .. } => self.tracer.closing(*round, *at),
                _ => {}
            }
        }
    }

    pub(super) async fn announce_waiting(&mut self) {
        let waiting = self.waiting();
        if waiting != self.waiting {
            self.waiting = waiting;
            if let Some(waiting) = waiting {
                self.events.tell(Event::Waiting(waiting)).await;
            }
        }
    }

    /// Logs what a client does, `camera-02 left`: a few times in a round, so that a client on a bad link does not fill the log.
    pub(super) fn say(&mut self, client: &ClientId, away: bool, what: &str) {
        let said = self.said.entry(client.clone()).or_default();
        *said = said.saturating_add(1);
        let line = match *said {
            ..=LINES => Some(format!("{client} {what}")),
            over => (over == LINES + 1)
                .then(|| format!("{client} {what}; its further changes in this round are not logged")),
        };
        // At the end of a run all clients leave.
        let line = line.filter(|_| !matches!(self.state.phase(), Phase::Done));
        line.iter().for_each(|line| tracing::info!("{line}"));
        self.show(client, away, line);
    }

    /// Logs that a client failed in the open round, once, or only shows that it is away.
    pub(super) fn say_failed(&self, client: &ClientId, round: u64, reason: &str) {
        let is_open = matches!(self.state.phase(), Phase::Training(open) if open.number == round);
        let is_new = is_open && !self.present.presence.is_sitting_out(client, round);
        let line = is_new.then(|| {
            let next = (round < self.plan.rounds).then(|| format!("; it tries again in round {}", round + 1));
            format!("{client} failed in round {round}: {reason}{}", next.unwrap_or_default())
        });
        line.iter().for_each(|line| tracing::warn!("{line}"));
        self.show(client, true, line);
    }

    pub(super) fn show(&self, client: &ClientId, away: bool, line: Option<String>) {
        let client = client.clone();
        self.events.hint(|| Event::Client { client, away, line });
    }

    /// The open round and the clients it waits for, while it takes updates.
    pub(super) fn open_round(&self) -> Option<OpenRound> {
        let Phase::Training(round) = self.state.phase() else {
            return None;
        };
        let cohort = &self.plan.cohort;
        let presence = &self.present.presence;
        let now = self.clock.now();
        let mut waits_for = Vec::new();
        let mut given_up = Vec::new();
        for client in round.missing() {
            let missing = Missing {
                client: client.to_string(),
                absent_since_ms: presence.absent_since(client, round.since),
            };
            if round.waits_for(client, presence, cohort.absent, now) {
                waits_for.push(missing);
            } else {
                given_up.push(missing);
            }
        }
        Some(OpenRound {
            round: round.number,
            attempt: round.attempt,
            asked: round.cohort.len(),
            answered: round.updates.len(),
            opened_ms: round.opened,
            until_ms: round.closes_at(cohort),
            given_up,
            waits_for,
        })
    }

    /// How many clients the run waits for, if no round is open.
    pub(super) fn waiting(&self) -> Option<Waiting> {
        matches!(self.state.phase(), Phase::Waiting).then(|| Waiting {
            present: self.present.presence.available().len(),
            min: self.plan.cohort.min,
            // While waiting, the only deadline is the end of the grace period that began when `min` clients were
            // connected.
            enough: self
                .state
                .wake(&self.plan, self.clock.now(), &self.present.presence)
                .is_some(),
        })
    }

    fn facts(&self, number: u64) -> Option<RoundFacts> {
        let round = self.history.rounds.get(&number)?;
        Some(RoundFacts {
            number,
            opened: round.opened,
            attempts: u64::from(round.attempts),
            cohort: round.cohort as u64,
            updates: round.updates as u64,
        })
    }

    /// The end of a round also ends the evaluations of the model with which it began.
    async fn round_closed(&mut self, round: u64, flow: Flow) {
        self.evaluated(round.saturating_sub(1)).await;
        if let Some(summary) = self.history.summary(round, flow, self.parameters) {
            tracing::info!(
                round,
                updates = summary.updates,
                loss = four_digits(summary.loss),
                metrics = listed(&summary.metrics),
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
            let ModelEvaluation { loss, examples, .. } = evaluated;
            tracing::info!(
                version,
                accuracy = evaluated.accuracy.map(four_digits),
                perplexity = evaluated.perplexity.map(four_digits),
                loss = four_digits(loss),
                metrics = listed(&evaluated.metrics),
                examples,
                "model evaluated"
            );
            self.events.tell(Event::Evaluated(evaluated)).await;
        }
    }
}

/// Metrics as one field of the log, `f1=0.875 top5=0.93`, if there are any.
fn listed(metrics: &BTreeMap<String, f64>) -> Option<String> {
    let parts: Vec<String> = metrics
        .iter()
        .map(|(name, mean)| format!("{name}={}", four_digits(*mean)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}
