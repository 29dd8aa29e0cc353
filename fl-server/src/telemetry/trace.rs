//! Spans of a round on the server: the round, its uploads, its downloads, its aggregation.
//!
//! No decision depends on them, and nothing waits for them.

use std::sync::Arc;
use std::time::Duration;

use fl_compress::Digest;
use fl_proto::trace::{Collector, Exporter, Nanos, Span, Spans, now};
use fl_proto::{ClientId, ModelHeader, UpdateHeader, UpdateReply};

use crate::accounting::ledger::Flow;
use crate::clock::Millis;
use crate::config::plan::RunPlan;

/// Timeout for the collector when the server stops.
pub(crate) const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// Starts sending to `collector`, if there is one.
pub(crate) fn start(
    collector: Option<&Collector>,
    plan: &Arc<RunPlan>,
    instance: Digest,
) -> (Tracer, Option<Exporter>) {
    let started = collector.map(|to| Exporter::start(to, "fl-server", None, env!("CARGO_PKG_VERSION")));
    let (spans, exporter) = started.unzip();
    let tracer = Tracer {
        plan: Arc::clone(plan),
        instance,
        spans: spans.unwrap_or_default(),
        closing: None,
    };
    (tracer, exporter)
}

/// A round, as its spans describe it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundFacts {
    pub(crate) number: u64,
    pub(crate) opened: Millis,
    pub(crate) attempts: u64,
    pub(crate) cohort: u64,
    pub(crate) updates: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Tracer {
    plan: Arc<RunPlan>,
    /// Identifies the run among those of its name.
    instance: Digest,
    spans: Spans,
    /// The round being closed, and since when.
    closing: Option<(u64, Millis)>,
}

impl Tracer {
    pub(crate) fn closing(&mut self, round: u64, at: Millis) {
        self.closing = Some((round, at));
    }

    /// Ends the trace of a closed round. `bytes`: of the model update. `flow`: bytes of all clients.
    pub(crate) fn round(&mut self, round: &RoundFacts, closed: Millis, bytes: u64, flow: &Flow) {
        let number = round.number;
        let opened = nanos(round.opened);
        let closed = nanos(closed);
        // A server that restarted meanwhile does not know when closing began.
        if let Some((_, since)) = self.closing.take().filter(|(closing, _)| *closing == number) {
            self.spans.give(|| {
                self.part("aggregate", number, "", nanos(since), closed)
                    .with("fl.updates", round.updates)
                    .with("fl.bytes", bytes)
            });
        }
        self.spans.give(|| {
            self.known(Span::root(&self.instance, number, opened, closed), number)
                .with("fl.attempt", round.attempts)
                .with("fl.cohort", round.cohort)
                .with("fl.updates", round.updates)
                .with("fl.bytes_up", flow.socket_up)
                .with("fl.bytes_down", flow.socket_down)
        });
    }

    /// Records that the run gave up in a round. The round may still be closed when the run is served again, so its root
    /// span is left for then.
    pub(crate) fn failed(&self, round: &RoundFacts, why: &str, at: Millis) {
        self.spans.give(|| Span {
            error: Some(why.to_owned()),
            ..self
                .part("gave-up", round.number, "", nanos(round.opened), nanos(at))
                .with("fl.attempt", round.attempts)
        });
    }

    /// Begins the span of an upload, or of its continuation.
    pub(crate) fn upload(&self, client: &ClientId, header: &UpdateHeader) -> Transfer {
        self.transfer(|start| {
            self.part("upload", header.id.round, client.as_str(), start, start)
                .with("fl.client", client.as_str())
                .with("fl.bytes", header.len)
                .with("fl.offset", header.offset)
        })
    }

    pub(crate) fn download(&self, client: &ClientId, version: u64, header: &ModelHeader) -> Transfer {
        // Version v is what round v + 1 begins with; the last is only evaluated.
        let round = version.saturating_add(1).min(self.plan.rounds);
        self.transfer(|start| {
            let form = if header.is_snapshot() { "snapshot" } else { "steps" };
            self.part("download", round, client.as_str(), start, start)
                .with("fl.client", client.as_str())
                .with("fl.version", version)
                .with("fl.form", form)
                .with("fl.bytes", header.sent_bytes())
        })
    }

    /// Begins the span of a download of the base, or of its continuation. It belongs to the first round, which begins with it.
    pub(crate) fn base(&self, client: &ClientId, offset: u64, len: u64) -> Transfer {
        self.transfer(|start| {
            self.part("base", 1, client.as_str(), start, start)
                .with("fl.client", client.as_str())
                .with("fl.bytes", len)
                .with("fl.offset", offset)
        })
    }

    fn transfer(&self, begun: impl FnOnce(Nanos) -> Span) -> Transfer {
        Transfer {
            spans: self.spans.clone(),
            span: self.spans.wanted().then(|| begun(now())),
        }
    }

    fn part(&self, name: &'static str, round: u64, who: &str, start: Nanos, end: Nanos) -> Span {
        self.known(Span::part(&self.instance, round, (name, who), start, end), round)
    }

    fn known(&self, span: Span, round: u64) -> Span {
        span.with("fl.run", self.plan.name.as_str()).with("fl.round", round)
    }
}

/// An upload or download in progress. Dropping it records that it was aborted.
#[derive(Debug)]
pub(crate) struct Transfer {
    spans: Spans,
    span: Option<Span>,
}

impl Transfer {
    /// The whole model was sent.
    pub(crate) fn done(mut self) {
        self.end(|span| span);
    }

    pub(crate) fn answered(mut self, reply: &UpdateReply) {
        self.end(|span| match reply {
            UpdateReply::Accepted => span.with("fl.verdict", "accepted"),
            UpdateReply::Wanted { .. } => span.with("fl.verdict", "wanted"),
            UpdateReply::Refused { why, message } => {
                let why = format!("refused: {why:?}");
                Span {
                    error: Some(message.clone()),
                    ..span.with("fl.verdict", why.as_str())
                }
            }
        });
    }

    fn end(&mut self, known: impl FnOnce(Span) -> Span) {
        if let Some(span) = self.span.take() {
            self.spans.give(|| {
                let end = now().max(span.start);
                known(Span { end, ..span })
            });
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.end(|span| Span {
            error: Some("broken off".to_owned()),
            ..span
        });
    }
}

fn nanos(at: Millis) -> Nanos {
    at.saturating_mul(1_000_000)
}
