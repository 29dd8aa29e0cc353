//! Sends spans in the background. The caller never waits: the queue is bounded, and spans that do not fit or cannot be sent are
//! dropped and counted. A failure is logged once until the collector answers again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint, Uri};

use super::otlp::wire::trace_service_client::TraceServiceClient;
use super::otlp::{request, resource, wire};
use super::span::Span;

// Capacity of the queue: the spans of a round of a thousand clients, about 2 MiB.
const QUEUE: usize = 4096;
// Most spans in one message.
const BATCH: usize = 512;
// How long spans are collected into one message.
const BATCH_DELAY: Duration = Duration::from_millis(500);
// Time limit of one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
// Pause after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Where a collector listens for OTLP over gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector(Uri);

impl Collector {
    /// The collector at `uri`, whose form was checked.
    pub(super) fn at(uri: Uri) -> Result<Self, &'static str> {
        Ok(Self(uri))
    }
}

/// Accepts spans. Made by [`Exporter::start`]; the default drops all.
#[derive(Debug, Clone, Default)]
pub struct Spans(Option<Taker>);

#[derive(Debug, Clone)]
struct Taker {
    queue: mpsc::Sender<Span>,
    dropped: Arc<AtomicU64>,
}

impl Spans {
    /// Whether spans are sent anywhere.
    pub fn wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Queues a span, which is made only if spans are sent. Never waits.
    pub fn give(&self, span: impl FnOnce() -> Span) {
        if let Some(taker) = &self.0
            && taker.queue.try_send(span()).is_err()
        {
            taker.dropped.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The task that sends.
#[derive(Debug)]
pub struct Exporter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts a task that sends to `collector`. It ends with [`Exporter::finish`], or when no [`Spans`] are left. `service`,
    /// `instance`: names of the process. Must be called within a runtime.
    pub fn start(collector: &Collector, service: &str, instance: Option<&str>, version: &str) -> (Spans, Self) {
        let (queue, spans) = mpsc::channel(QUEUE);
        let (stop, stopped) = oneshot::channel();
        let dropped = Arc::new(AtomicU64::new(0));
        let endpoint = Endpoint::from(collector.0.clone()).connect_timeout(SEND_TIMEOUT);
        let sender = Sender {
            client: TraceServiceClient::new(endpoint.connect_lazy()),
            resource: resource(service, instance, version),
            address: collector.0.to_string(),
            dropped: Arc::clone(&dropped),
            warned: false,
        };
        let task = tokio::spawn(sender.run(spans, stopped));
        (Spans(Some(Taker { queue, dropped })), Self { stop, task })
    }

    /// Sends the queued spans within the time limit, and ends.
    pub async fn finish(self, within: Duration) {
        let Self { stop, mut task } = self;
        let _ = stop.send(());
        if timeout(within, &mut task).await.is_err() {
            task.abort();
            tracing::warn!("the collector did not accept the last spans in time; they are lost");
        }
    }
}

struct Sender {
    client: TraceServiceClient<Channel>,
    resource: wire::Resource,
    address: String,
    dropped: Arc<AtomicU64>,
    warned: bool,
}

impl Sender {
    async fn run(mut self, mut spans: mpsc::Receiver<Span>, mut stop: oneshot::Receiver<()>) {
        let mut batch = Vec::new();
        loop {
            let running = tokio::select! {
                n = spans.recv_many(&mut batch, BATCH) => n > 0,
                _ = &mut stop => false,
            };
            let wait = if running { BATCH_DELAY } else { Duration::ZERO };
            let stopping = !running || stops(&mut stop, wait).await;
            while batch.len() < BATCH
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            if stopping {
                return self.rest(batch, spans).await;
            }
            // After a stop signal the task still waits for this message; `finish` has the time limit.
            let sent = self.send(std::mem::take(&mut batch)).await;
            if !sent && stops(&mut stop, RETRY_AFTER).await {
                return self.rest(batch, spans).await;
            }
        }
    }

    /// Sends the remaining spans until one message fails.
    async fn rest(&mut self, mut batch: Vec<Span>, mut spans: mpsc::Receiver<Span>) {
        spans.close();
        loop {
            while batch.len() < BATCH
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() || !self.send(std::mem::take(&mut batch)).await {
                break;
            }
        }
        let lost = self.dropped.load(Ordering::Acquire) + spans.len() as u64;
        if lost > 0 {
            tracing::warn!(
                lost,
                collector = self.address,
                "traces have gaps: some spans could not be sent"
            );
        }
    }

    /// Sends one message; true if the collector accepted it.
    async fn send(&mut self, batch: Vec<Span>) -> bool {
        let len = batch.len() as u64;
        let call = self.client.export(request(&self.resource, batch));
        let why = match timeout(SEND_TIMEOUT, call).await {
            Ok(Ok(reply)) => {
                let rejected = reply.into_inner().partial_success.unwrap_or_default();
                let count = u64::try_from(rejected.rejected_spans).unwrap_or(0).min(len);
                self.dropped.fetch_add(count, Ordering::AcqRel);
                if count == 0 {
                    self.went_well();
                } else {
                    self.warn(&format!("it rejected {count} spans: {}", rejected.error_message));
                }
                return true;
            }
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => format!("no answer within {} s", SEND_TIMEOUT.as_secs()),
        };
        self.dropped.fetch_add(len, Ordering::AcqRel);
        self.warn(&why);
        false
    }

    fn warn(&mut self, why: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                why,
                collector = self.address,
                "the collector does not accept traces; the run continues without them"
            );
        }
    }

    fn went_well(&mut self) {
        if std::mem::take(&mut self.warned) {
            let lost = self.dropped.load(Ordering::Acquire);
            tracing::info!(lost, collector = self.address, "the collector accepts traces again");
        }
    }
}

/// Waits; true if the stop signal came first.
async fn stops(stop: &mut oneshot::Receiver<()>, wait: Duration) -> bool {
    tokio::select! {
        biased;
        _ = stop => true,
        () = sleep(wait) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_compress::Digest;
    use tokio::net::TcpListener;

    fn span(start: u64) -> Span {
        Span::root(&Digest([1; 32]), 1, start, start)
    }

    async fn start() -> (Spans, Exporter, TcpListener) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let collector = Collector::at(address.parse().unwrap()).unwrap();
        let (spans, exporter) = Exporter::start(&collector, "test", None, "0");
        (spans, exporter, listener)
    }

    #[tokio::test]
    async fn what_does_not_fit_is_dropped_and_counted_without_waiting() {
        let (spans, _exporter, _listener) = start().await;
        // The task that sends has not run yet: this test is on the only thread and has not waited.
        (0..QUEUE as u64 + 3).for_each(|n| spans.give(|| span(n)));
        assert_eq!(spans.0.unwrap().dropped.load(Ordering::Acquire), 3);
    }

    #[tokio::test]
    async fn a_collector_that_is_not_there_loses_spans_and_holds_nothing_up() {
        let (spans, exporter, listener) = start().await;
        drop(listener);
        (0..5).for_each(|n| spans.give(|| span(n)));
        exporter.finish(SEND_TIMEOUT).await;
        assert_eq!(spans.0.unwrap().dropped.load(Ordering::Acquire), 5);
    }

    #[tokio::test]
    async fn a_collector_that_never_answers_is_waited_for_no_longer_than_said() {
        let (spans, exporter, _listener) = start().await;
        spans.give(|| span(1));
        let within = Duration::from_millis(20);
        let finished = timeout(SEND_TIMEOUT / 2, exporter.finish(within));
        assert!(finished.await.is_ok());
    }

    #[test]
    fn nobody_makes_a_span_that_nobody_wants() {
        Spans::default().give(|| unreachable!("it is not wanted"));
    }
}
