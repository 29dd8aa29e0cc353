//! Spans of a client's work in a round, made from its events: fetch, train, encode, send.
//!
//! Like events, spans are for people: nothing depends on them, and no event waits for them.

use std::collections::BTreeMap;
use std::time::Duration;

use fl_compress::Digest;
use fl_proto::trace::{Collector, Exporter, Nanos, Span, Spans, now};
use fl_proto::{ClientId, RunName};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::event::{Event, Sink, Verdict};

/// Capacity of the queue: a client makes a handful of marks each round.
const QUEUE: usize = 256;
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Passes events on to `events`, and turns them into spans for `collector`, if there is one.
pub(crate) fn start(collector: Option<Collector>, events: impl Fn(Event) + Send + Sync + 'static) -> (Sink, Tracing) {
    let Some(collector) = collector else {
        return (Sink::new(events), Tracing(None));
    };
    let (marks, queue) = mpsc::channel(QUEUE);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(trace(collector, queue, stopped));
    let sink = Sink::new(move |event| {
        for what in marks_of(&event) {
            // If the queue is full, a span is missing.
            let _ = marks.try_send((now(), what));
        }
        events(event);
    });
    (sink, Tracing(Some((stop, task))))
}

/// The task that makes spans, if there is one.
#[derive(Debug)]
pub(crate) struct Tracing(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Tracing {
    /// Sends the remaining spans within a bounded time.
    pub(crate) async fn finish(self) {
        if let Some((stop, task)) = self.0 {
            let _ = stop.send(());
            let _ = task.await;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Fetch,
    Train,
    Encode,
    Send,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Train => "train",
            Self::Encode => "encode",
            Self::Send => "send",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    Joined(JoinedRun),
    /// A step of the round has started; for `Fetch`, the number is the model version.
    Begin(Part, u64),
    /// The step is done: bytes of the frame, if there is one, and the server's answer.
    End(Part, Option<u64>, Option<&'static str>),
    Fail(Part, String),
}

fn marks_of(event: &Event) -> Vec<Mark> {
    match event {
        Event::Connected {
            client,
            run,
            rounds,
            instance,
            ..
        } => vec![Mark::Joined(JoinedRun {
            client: client.clone(),
            run: run.clone(),
            rounds: *rounds,
            instance: *instance,
        })],
        Event::Fetching { version } => vec![Mark::Begin(Part::Fetch, *version)],
        Event::Fetched { .. } => vec![Mark::End(Part::Fetch, None, None)],
        Event::Training { round, .. } => vec![Mark::Begin(Part::Train, *round)],
        Event::Encoding { round } => vec![Mark::End(Part::Train, None, None), Mark::Begin(Part::Encode, *round)],
        Event::Encoded { bytes, .. } => vec![Mark::End(Part::Encode, Some(*bytes), None)],
        Event::Sending { round, .. } => vec![Mark::Begin(Part::Send, *round)],
        Event::Sent { bytes, verdict, .. } => {
            let verdict = match verdict {
                Verdict::Accepted => "accepted",
                Verdict::Refused { .. } => "refused",
            };
            vec![Mark::End(Part::Send, Some(*bytes), Some(verdict))]
        }
        Event::LeftRound { why, .. } => [Part::Train, Part::Encode]
            .map(|part| Mark::Fail(part, why.clone()))
            .to_vec(),
        // Training continues without a connection.
        Event::Disconnected { why, .. } => [Part::Fetch, Part::Send]
            .map(|part| Mark::Fail(part, why.clone()))
            .to_vec(),
        Event::FetchingBase { .. }
        | Event::FetchedBase { .. }
        | Event::Round { .. }
        | Event::Traffic { .. }
        | Event::Evaluated { .. }
        | Event::NotEvaluated { .. }
        | Event::Failed { .. }
        | Event::Done { .. } => Vec::new(),
    }
}

async fn trace(collector: Collector, mut marks: mpsc::Receiver<(Nanos, Mark)>, mut stop: oneshot::Receiver<()>) {
    let mut tracer = Tracer::default();
    let mut exporter = None;
    loop {
        let next = tokio::select! {
            biased;
            next = marks.recv() => next,
            _ = &mut stop => None,
        };
        let Some((at, mark)) = next else { break };
        if let (Mark::Joined(JoinedRun { client, .. }), None) = (&mark, &exporter) {
            let version = env!("CARGO_PKG_VERSION");
            let (spans, started) = Exporter::start(&collector, "fl-client", Some(client.as_str()), version);
            (tracer.spans, exporter) = (spans, Some(started));
        }
        tracer.mark(at, mark);
    }
    if let Some(exporter) = exporter {
        exporter.finish(FLUSH_TIMEOUT).await;
    }
}

#[derive(Debug, Default)]
struct Tracer {
    spans: Spans,
    joined: Option<JoinedRun>,
    open: BTreeMap<Part, (u64, Nanos)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct JoinedRun {
    client: ClientId,
    run: RunName,
    rounds: u64,
    instance: Digest,
}

impl Tracer {
    fn mark(&mut self, at: Nanos, mark: Mark) {
        match mark {
            Mark::Joined(joined) => {
                if self
                    .joined
                    .as_ref()
                    .is_some_and(|before| before.instance != joined.instance)
                {
                    self.open.clear();
                }
                self.joined = Some(joined);
            }
            Mark::Begin(part, number) => {
                self.end(part, at, Some("superseded".to_owned()), |span| span);
                let round = match (part, &self.joined) {
                    // Round v + 1 starts from version v; the last version is only evaluated.
                    (Part::Fetch, Some(joined)) => number.saturating_add(1).min(joined.rounds),
                    _ => number,
                };
                self.open.insert(part, (round, at));
            }
            Mark::End(part, bytes, verdict) => self.end(part, at, None, |span| {
                let span = bytes.into_iter().fold(span, |span, bytes| span.with("fl.bytes", bytes));
                verdict
                    .into_iter()
                    .fold(span, |span, verdict| span.with("fl.verdict", verdict))
            }),
            Mark::Fail(part, why) => self.end(part, at, Some(why), |span| span),
        }
    }

    fn end(&mut self, part: Part, at: Nanos, error: Option<String>, known: impl FnOnce(Span) -> Span) {
        let (Some((round, start)), Some(joined)) = (self.open.remove(&part), &self.joined) else {
            return;
        };
        self.spans.give(|| {
            let client = joined.client.as_str();
            // The server's spans for the same client have other names.
            let span = Span::part(&joined.instance, round, (part.name(), client), start, at)
                .with("fl.run", joined.run.as_str())
                .with("fl.round", round)
                .with("fl.client", client);
            Span { error, ..known(span) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learner_at_work_outlives_the_connection_and_a_transfer_does_not() {
        let why = "gone".to_owned();
        let retry_in = Duration::ZERO;
        let marks = marks_of(&Event::Disconnected {
            why: why.clone(),
            retry_in,
        });
        assert_eq!(
            marks,
            [Mark::Fail(Part::Fetch, why.clone()), Mark::Fail(Part::Send, why)]
        );
    }

    #[test]
    fn the_end_of_training_is_the_beginning_of_encoding() {
        let marks = marks_of(&Event::Encoding { round: 3 });
        assert_eq!(
            marks,
            [Mark::End(Part::Train, None, None), Mark::Begin(Part::Encode, 3)]
        );
    }
}
