//! The lines of `serve` on the standard output.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fl_cli::{out, service};
use fl_proto::ClientId;
use fl_report::{MOST_BITS, size};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::telemetry::event::{Event, ModelEvaluation, RoundSummary, Waiting, names, short};

/// Prints lines on the standard output. If it fails, warns once, and the run continues.
pub(super) fn printer() -> impl FnMut(&str) {
    let mut failed = false;
    move |line| {
        if let Err(error) = out::line(format_args!("{line}")) {
            if !failed {
                tracing::warn!("{error:#}; the run continues");
            }
            failed = true;
        }
    }
}

/// At most one line about waiting clients in this time.
const WAITING_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which an open round prints the clients that it waits for.
const MISSING_AFTER: Duration = Duration::from_secs(10);
const MISSING_INTERVAL: Duration = Duration::from_secs(60);

struct Open {
    round: u64,
    asked: usize,
    /// Clients that the round waits for.
    missing: BTreeSet<ClientId>,
    /// Missing clients that are not connected.
    gone: BTreeSet<ClientId>,
    due: Instant,
}

impl Open {
    fn note(&mut self, event: &Event) {
        match event {
            Event::UpdateAccepted { client, .. } => {
                self.missing.remove(client);
            }
            Event::MembersReplaced { absent, by, .. } => {
                self.missing.retain(|client| !absent.contains(client));
                self.missing.extend(by.iter().cloned());
            }
            Event::Client { client, away, .. } => {
                self.gone.remove(client);
                self.gone.extend(away.then(|| client.clone()));
            }
            _ => {}
        }
    }

    fn line(&self) -> String {
        let missing = self.missing.iter().map(|client| {
            let note = if self.gone.contains(client) { " (gone)" } else { "" };
            format!("{client}{note}")
        });
        let missing: Vec<_> = missing.collect();
        let of = format!("{} of {}", missing.len(), self.asked);
        format!("round {:>4}  waits for {of}: {}", self.round, names(&missing))
    }
}

/// Printed when the run is over and the server stays.
pub(super) const OVER: &str = "the run is over; the server answers clients and commands until it is stopped (Ctrl-C)";

/// Prints events as lines: `ready` when the server serves, `over` when the run is over.
pub(super) async fn print(
    ready: String,
    over: Option<&str>,
    mut events: mpsc::Receiver<Event>,
    mut say: impl FnMut(&str),
) {
    let mut waiting: Option<(Instant, Waiting)> = None;
    let mut open: Option<Open> = None;
    loop {
        let long = async {
            match open.as_ref().filter(|open| !open.missing.is_empty()) {
                Some(open) => sleep_until(open.due).await,
                None => std::future::pending().await,
            }
        };
        let due = async {
            match waiting {
                Some((due, _)) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = events.recv() => match event {
                None => break,
                Some(Event::Ready) => {
                    say(&ready);
                    service::ready(&ready);
                }
                Some(Event::Waiting(now)) => {
                    let due = waiting.map_or_else(|| Instant::now() + WAITING_INTERVAL, |(due, _)| due);
                    waiting = Some((due, now));
                }
                Some(event) => {
                    if matches!(event, Event::RoundOpened { .. } | Event::Done | Event::Failed { .. }) {
                        waiting = None;
                    }
                    match &event {
                        Event::RoundOpened { round, cohort, .. } => {
                            // Clients that answered in an earlier attempt are not asked again.
                            let before = open.take().filter(|open| open.round == *round);
                            let mut missing: BTreeSet<_> = cohort.iter().cloned().collect();
                            let mut gone = BTreeSet::new();
                            if let Some(before) = before {
                                missing.retain(|client| before.missing.contains(client));
                                gone = before.gone;
                            }
                            let due = Instant::now() + MISSING_AFTER;
                            open = Some(Open { round: *round, asked: cohort.len(), missing, gone, due });
                        }
                        Event::RoundClosed(_) | Event::Done | Event::Failed { .. } => open = None,
                        event => open.iter_mut().for_each(|open| open.note(event)),
                    }
                    if let (Event::Done, Some(over)) = (&event, over) {
                        say(over);
                    }
                    line(&event).into_iter().for_each(|line| say(&line));
                }
            },
            () = long => {
                if let Some(open) = &mut open {
                    say(&open.line());
                    open.due = Instant::now() + MISSING_INTERVAL;
                }
            }
            () = due => waiting.take().into_iter().for_each(|(_, now)| say(&now.to_string())),
        }
    }
}

fn line(event: &Event) -> Option<String> {
    Some(match event {
        Event::RoundOpened { round, attempt, cohort } if *attempt > 1 => {
            format!(
                "round {round:>4}  opened again, attempt {attempt}, {} clients asked",
                cohort.len()
            )
        }
        Event::RoundClosed(RoundSummary {
            round,
            updates,
            loss,
            seconds,
            flow,
            bits_up,
            bits_down,
            metrics,
        }) => {
            let up = size(flow.socket_up) + &bits(*bits_up, " bits per parameter");
            let down = size(flow.socket_down) + &bits(*bits_down, "");
            let loss = short(*loss);
            let metrics = spaced(metrics);
            format!("round {round:>4}  {updates} updates  loss {loss}{metrics}  up {up}  down {down}  {seconds:.2} s")
        }
        Event::Evaluated(ModelEvaluation {
            version,
            examples,
            accuracy,
            perplexity,
            loss,
            metrics,
        }) => {
            let accuracy = accuracy.map_or(String::new(), |share| format!("  accuracy {share:.4}"));
            let perplexity = perplexity.map_or(String::new(), |value| format!("  perplexity {}", short(value)));
            let loss = short(*loss);
            let metrics = spaced(metrics);
            format!("model {version:>4}{accuracy}{perplexity}  loss {loss}{metrics}  on {examples} examples")
        }
        Event::Limited { round, text } => format!("round {round:>4}  {text}"),
        Event::MembersReplaced { round, absent, by } => {
            format!("round {round:>4}  asks {} in place of {}", names(by), names(absent))
        }
        Event::Client { line: Some(line), .. } => line.clone(),
        Event::TurnedAway { client, reason, why } => format!("turned away {client} ({reason}): {why}"),
        Event::Alert(text) => format!("ALERT: {text}"),
        Event::Damaged(text) => format!("DAMAGED: {text}"),
        Event::Warning(text) => format!("warning: {text}"),
        _ => return None,
    })
}

/// Bits of a parameter in parentheses, unless so many that they say nothing.
fn bits(bits: f64, unit: &str) -> String {
    if bits <= MOST_BITS {
        format!(" ({bits:.3}{unit})")
    } else {
        String::new()
    }
}

/// Metrics as parts of a line, two spaces before each.
fn spaced(metrics: &BTreeMap<String, f64>) -> String {
    metrics
        .iter()
        .map(|(name, mean)| format!("  {name} {}", short(*mean)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::EVENTS;
    use super::*;

    fn waiting(present: usize) -> Event {
        let (min, enough) = (3, present >= 3);
        Event::Waiting(Waiting { present, min, enough })
    }

    fn opened() -> Event {
        Event::RoundOpened {
            round: 1,
            attempt: 1,
            cohort: Vec::new(),
        }
    }

    /// What is printed when these events come, and some seconds after each batch.
    async fn printed(batches: impl IntoIterator<Item = (Vec<Event>, u64)>) -> Vec<String> {
        let (events, queue) = mpsc::channel(EVENTS);
        let (lines, mut said) = mpsc::unbounded_channel();
        let printing = tokio::spawn(print("ready".into(), Some(OVER), queue, move |line: &str| {
            let _ = lines.send(line.to_owned());
        }));
        for (batch, seconds) in batches {
            for event in batch {
                events.send(event).await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        drop(events);
        printing.await.unwrap();
        std::iter::from_fn(|| said.try_recv().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn whom_a_run_waits_for_is_said_when_it_waits_long() {
        let lines = printed([
            (vec![Event::Ready, waiting(0), waiting(1)], 2),
            (vec![waiting(2)], 2),
            (vec![opened()], 2),
        ]);
        let expected = [
            "ready",
            "waiting for 2 more clients: 1 of min 3 present",
            "waiting for 1 more client: 2 of min 3 present",
        ];
        assert_eq!(lines.await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_stays_open_says_whom_it_waits_for() {
        let client = |name: &str| -> ClientId { name.parse().unwrap() };
        let cohort = ["anna", "berta", "carl"].map(client).to_vec();
        let opened = Event::RoundOpened {
            round: 1,
            attempt: 1,
            cohort,
        };
        let answered = Event::UpdateAccepted {
            client: client("anna"),
            bytes: 1,
        };
        let gone = Event::Client {
            client: client("carl"),
            away: true,
            line: Some("carl left".to_owned()),
        };
        let replaced = Event::MembersReplaced {
            round: 1,
            absent: vec![client("carl")],
            by: vec![client("dora")],
        };
        let events = [(opened, 1), (answered, 1), (gone, 10), (replaced, 60)];
        let said = printed(events.map(|(event, seconds)| (vec![event], seconds))).await;
        let expected = [
            "carl left",
            "round    1  waits for 2 of 3: berta, carl (gone)",
            "round    1  asks dora in place of carl",
            "round    1  waits for 2 of 3: berta, dora",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn frames_of_a_few_values_have_no_bits() {
        let closed = |bits_up| {
            let summary = RoundSummary {
                round: 1,
                updates: 3,
                loss: 0.5,
                seconds: 1.0,
                flow: crate::accounting::ledger::Flow::default(),
                bits_up,
                bits_down: 0.25,
                metrics: BTreeMap::new(),
            };
            line(&Event::RoundClosed(summary)).unwrap()
        };
        assert!(closed(0.5).contains("up 0 B (0.500 bits per parameter)  down 0 B (0.250)"));
        assert!(closed(73.0).contains("up 0 B  down 0 B (0.250)"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_run_is_said_by_a_server_that_stays() {
        let lines = printed([(vec![Event::Ready, opened(), Event::Done], 2)]);
        assert_eq!(lines.await, ["ready", OVER]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_opens_at_once_is_not_waited_for() {
        let lines = printed([(vec![Event::Ready, waiting(0), waiting(3), opened()], 2)]);
        assert_eq!(lines.await, ["ready"]);
    }
}
