//! `/metrics`: the counters of the running server, as OpenMetrics text.
//!
//! Counters begin with the process. Those of the ledger move when a round closes, because only then bytes are booked to
//! it; `fl_ledger_open` has the rest. How many series there are depends on the size of the federation only up to
//! [`Connections::NAMED`] clients and the certificates. docs/reference/monitoring.md lists every metric; a test
//! compares.
//!
//! [`Connections::NAMED`]: crate::accounting::connections::Connections::NAMED

mod edge;
mod process;
mod registry;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use prometheus_client::registry::Unit;

use super::view::{Certificate, View};
use crate::accounting::edge::Edge;
use crate::accounting::ledger::{Direction, Flow};
use crate::accounting::sample::ClientBytes;
use crate::clock::Millis;
use crate::reporting::moment::RunBytes;
use crate::telemetry::event::RoundSummary;
use crate::telemetry::status::{StatusSnapshot, TensorGauge};
pub(crate) use process::Process;
use registry::{Labels, Metrics, any, flag, label, labels, one};

#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) view: &'a View,
    pub(crate) known: &'a StatusSnapshot,
    pub(crate) version: u64,
    pub(crate) clients: &'a [ClientBytes],
    /// Bytes since the newest round closed, or since the start.
    pub(crate) open: Flow,
    pub(crate) edge: &'a Edge,
    pub(crate) process: Process,
}

const ROUND_CLOSED: &str = "of the newest closed round";

/// The metrics as OpenMetrics text.
pub(crate) fn text(inputs: &Inputs<'_>) -> Result<String, fmt::Error> {
    let Inputs { view, known, .. } = inputs;
    let mut metrics = Metrics::default();
    inputs.process.write(&mut metrics);
    let build = label("version", env!("CARGO_PKG_VERSION"));
    metrics.gauges("fl_build_info", "The program", None, [(build, 1.0)]);
    let run = label("run", &view.run);
    metrics.gauges("fl_run_info", "The run that is served", None, [(run, 1.0)]);
    bytes(&mut metrics, inputs);
    counts(&mut metrics, known);
    edge::write(&mut metrics, inputs.edge);
    standing(&mut metrics, view, inputs.version);
    if let Some(last) = &known.closed.last {
        newest(&mut metrics, last);
    }
    if let Some(seen) = &known.evaluated {
        let about = "Share of held-out examples that the newest evaluated model classifies correctly";
        metrics.gauges("fl_model_accuracy", about, Some(ratio()), any(seen.accuracy));
        let about = "Exponential of the loss of the newest evaluated model, if it is a language model";
        metrics.gauges("fl_model_perplexity", about, None, any(seen.perplexity));
        let about = "Means of the clients' metrics of the newest evaluated model";
        metrics.gauges("fl_model_metric", about, None, named(&seen.metrics));
        let about = "Mean loss of the newest evaluated model over them";
        metrics.gauge("fl_model_loss", about, seen.loss);
    }
    tensors(&mut metrics, &known.tensors);
    certificates(&mut metrics, &view.certificates);
    metrics.text()
}

/// OpenMetrics text as Prometheus' older text format: a counter's family has the name of its series, and there are no units.
pub(crate) fn classic(text: &str) -> String {
    let counters: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(text.len());
    for line in text
        .lines()
        .filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF")
    {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(&name) => {
                let _ = writeln!(out, "# {what} {name}_total {rest}");
            }
            _ => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

fn ratio() -> Unit {
    Unit::Other("ratio".to_owned())
}

fn ways(up: f64, down: f64) -> [(Labels, f64); 2] {
    [(label("direction", "up"), up), (label("direction", "down"), down)]
}

fn bytes(metrics: &mut Metrics, inputs: &Inputs<'_>) {
    let throughput = &inputs.view.throughput;
    let sockets = ways(throughput.socket_up as f64, throughput.socket_down as f64);
    let about = "Bytes on the sockets of all clients, counted under TLS";
    metrics.counters("fl_socket", about, Some(Unit::Bytes), sockets);
    let kinds = inputs.known.closed.flow.kinds();
    let kinds = kinds.map(|(way, kind, bytes)| (labels(("direction", way), ("kind", kind)), bytes as f64));
    let about = "Bytes of closed rounds by what they were for";
    metrics.counters("fl_ledger", about, Some(Unit::Bytes), kinds);
    let mut clients = Vec::new();
    for ClientBytes { client, socket, .. } in inputs.clients {
        let client = ("client", client.as_str());
        clients.push((labels(client, ("direction", "up")), socket.0 as f64));
        clients.push((labels(client, ("direction", "down")), socket.1 as f64));
    }
    let about = "Bytes on the sockets of each client; of those that came after the first 200 together, as `*`";
    metrics.counters("fl_client_socket", about, Some(Unit::Bytes), clients);
    let open = ways(inputs.open.socket_up as f64, inputs.open.socket_down as f64);
    let about = "Bytes on the sockets since the newest round closed, which no ledger row of a closed round has";
    metrics.gauges("fl_ledger_open", about, Some(Unit::Bytes), open);
    if let Some(moved) = &inputs.view.moved {
        self::moved(metrics, moved);
    }
}

/// Bytes that the run has moved, in all its processes, equal to the report.
fn moved(metrics: &mut Metrics, moved: &RunBytes) {
    let pending = ways(moved.pending_up as f64, moved.pending_down as f64);
    let about = "Bytes on the sockets that are not on disk yet";
    metrics.gauges("fl_ledger_pending", about, Some(Unit::Bytes), pending);
    let sockets = ways(moved.socket_up as f64, moved.socket_down as f64);
    let about = "Bytes that the run has moved, since it was begun";
    metrics.gauges("fl_run_socket", about, Some(Unit::Bytes), sockets);
    let saving = any(Some(moved.ratio).filter(|ratio| *ratio > 0.0));
    let about =
        "Bytes of fp32 federated averaging over those of the run, for the rounds whose models have reached clients";
    metrics.gauges("fl_run_saving", about, Some(ratio()), saving);
    let about = "1 if the ledger is what the sockets have carried, to the byte";
    metrics.gauge("fl_ledger_balanced", about, flag(moved.balanced));
}

fn counts(metrics: &mut Metrics, known: &StatusSnapshot) {
    let closed = &known.closed;
    metrics.counter("fl_rounds_closed", "Rounds closed", closed.rounds as f64);
    let about = "From the opening to the model of each closed round, added up";
    metrics.counters("fl_rounds_closed", about, Some(Unit::Seconds), one(closed.seconds));
    metrics.counter("fl_updates_accepted", "Updates counted", closed.updates as f64);
    let about = "Updates refused, after they had arrived";
    metrics.counter("fl_updates_refused", about, closed.refused as f64);
    let refused = known.turned.counts();
    let refused = refused.map(|(reason, count)| (label("reason", reason.label()), count as f64));
    metrics.counters("fl_joins_refused", "Times that a client was turned away", None, refused);
    let about = "Uploads that were resumed or sent again, of closed rounds";
    metrics.counter("fl_upload_retries", about, closed.flow.retries as f64);
    let about = "Connections that clients opened, of closed rounds";
    metrics.counter("fl_connections_opened", about, closed.flow.connections as f64);
    let about = "Alerts: rounds whose ledger differs from what the sockets carried";
    metrics.counter("fl_alerts", about, closed.alerts as f64);
    let about = "Warnings: tensors that were sent at next to nothing for several rounds";
    metrics.counter("fl_warnings", about, closed.warnings as f64);
}

/// Tensors with series, in each direction.
const TENSORS: usize = 50;

/// A family with a series for each tensor.
struct TensorFamily {
    name: &'static str,
    about: &'static str,
    unit: Option<&'static str>,
    value: fn(&TensorGauge) -> Option<f64>,
}

const TENSOR_FAMILIES: [TensorFamily; 8] = [
    TensorFamily {
        name: "fl_tensor_cosine",
        about: "Mean cosine of what is received and the update before compression",
        unit: Some("ratio"),
        value: TensorGauge::cosine,
    },
    TensorFamily {
        name: "fl_tensor_energy_kept",
        about: "Mean share of energy kept by the frames",
        unit: Some("ratio"),
        value: |gauge| gauge.fidelity?.mean_kept(),
    },
    TensorFamily {
        name: "fl_tensor_density",
        about: "Share of values that are not zero",
        unit: Some("ratio"),
        value: |gauge| Some(gauge.density),
    },
    TensorFamily {
        name: "fl_tensor_bytes_per_parameter",
        about: "Bytes of frame per parameter",
        unit: None,
        value: |gauge| Some(gauge.bits / 8.0),
    },
    TensorFamily {
        name: "fl_tensor_rank",
        about: "Mean rank of the frames that have one,",
        unit: None,
        value: |gauge| gauge.rank,
    },
    TensorFamily {
        name: "fl_tensor_entropy",
        about: "Entropy of the energy of the aggregated updates, or of the model update,",
        unit: Some("nats"),
        value: |gauge| gauge.entropy,
    },
    TensorFamily {
        name: "fl_tensor_residual_age",
        about: "Age of the oldest residual, in updates of its sender,",
        unit: None,
        value: |gauge| Some(gauge.fidelity?.oldest.into()),
    },
    TensorFamily {
        name: "fl_tensor_starved",
        about: "Rounds in a row in which a tensor was sent at next to nothing, as",
        unit: Some("rounds"),
        value: |gauge| Some(gauge.starved.into()),
    },
];

fn tensors(metrics: &mut Metrics, gauges: &[TensorGauge]) {
    let mut shown = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        let mut gauges: Vec<_> = gauges.iter().filter(|gauge| gauge.direction == direction).collect();
        gauges.sort_by(|a, b| {
            let starved = b.starved.cmp(&a.starved);
            starved.then(a.cosine().unwrap_or(1.0).total_cmp(&b.cosine().unwrap_or(1.0)))
        });
        shown.extend(gauges.into_iter().take(TENSORS));
    }
    for family in TENSOR_FAMILIES {
        let series = shown.iter().filter_map(|gauge| {
            let direction = ("direction", gauge.direction.name());
            Some((labels(direction, ("tensor", &gauge.tensor)), (family.value)(gauge)?))
        });
        let about = format!("{} {ROUND_CLOSED}", family.about);
        let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
        metrics.gauges(family.name, &about, unit, series);
    }
}

fn standing(metrics: &mut Metrics, view: &View, version: u64) {
    metrics.gauge("fl_round_number", "The open round, or the newest", view.round as f64);
    metrics.gauge("fl_rounds_planned", "Rounds of the run", view.planned as f64);
    let about = "Times the open round was opened, or 0";
    metrics.gauge("fl_round_attempts", about, view.attempt.into());
    metrics.gauge("fl_model_version", "Newest model version", version as f64);
    let phases = ["waiting", "training", "closing", "evaluating", "done", "failed"];
    let phases = phases.map(|phase| (label("phase", phase), flag(phase == view.phase)));
    metrics.gauges("fl_phase", "1 for the phase that the run is in", None, phases);
    let about = "When the open round was opened, since 1970";
    let opened = any(view.opened_ms.map(|at| wall_seconds(view, at)));
    metrics.gauges("fl_round_opened_timestamp", about, Some(Unit::Seconds), opened);
    let about = "When the open round is closed with whom has answered, or given up, since 1970";
    let deadline = any(view.deadline_ms.map(|at| wall_seconds(view, at)));
    metrics.gauges("fl_round_deadline_timestamp", about, Some(Unit::Seconds), deadline);
    let about = "Clients that are connected";
    metrics.gauge("fl_clients_connected", about, view.present.len() as f64);
    let about = "Connected clients that take part in no round for now";
    metrics.gauge("fl_clients_paused", about, view.paused.len() as f64);
    let states = ["training", "sending", "done", "paused", "absent"].map(|state| {
        let clients = view.cohort.iter().filter(|member| member.state == state).count();
        (label("state", state), clients as f64)
    });
    let about = "Clients of the open round by what they do";
    metrics.gauges("fl_cohort_clients", about, None, states);
    let late = view.cohort.iter().filter(|member| member.late).count();
    let about = "Clients of the open round that it could close without";
    metrics.gauge("fl_cohort_late_clients", about, late as f64);
    let sending = view.cohort.iter().filter(|member| member.state == "sending");
    let left: u64 = sending.map(|member| member.total.saturating_sub(member.received)).sum();
    let about = "Bytes of frames that are still to come of the uploads in progress";
    metrics.gauges("fl_uploads_remaining", about, Some(Unit::Bytes), one(left as f64));
}

/// A time of the run in the time of day: scrapers compare it with their clock.
fn wall_seconds(view: &View, at: Millis) -> f64 {
    at.saturating_add(view.wall_ms).saturating_sub(view.now_ms) as f64 / 1000.0
}

fn newest(metrics: &mut Metrics, last: &RoundSummary) {
    let about = format!("From opening to model {ROUND_CLOSED}");
    metrics.gauges("fl_last_round_duration", &about, Some(Unit::Seconds), one(last.seconds));
    let sockets = ways(last.flow.socket_up as f64, last.flow.socket_down as f64);
    let about = format!("Bytes on the sockets {ROUND_CLOSED}");
    metrics.gauges("fl_last_round_socket", &about, Some(Unit::Bytes), sockets);
    let about = format!("Updates {ROUND_CLOSED}");
    metrics.gauge("fl_last_round_updates", &about, last.updates as f64);
    let about = format!("Mean training loss {ROUND_CLOSED}");
    metrics.gauge("fl_last_round_training_loss", &about, last.loss);
    let about = format!("Means of the clients' metrics of the training {ROUND_CLOSED}");
    metrics.gauges("fl_last_round_training_metric", &about, None, named(&last.metrics));
    let bytes = ways(last.bits_up / 8.0, last.bits_down / 8.0);
    let about = format!("Bytes of frame for each parameter of the updates and of the step {ROUND_CLOSED}");
    metrics.gauges("fl_last_round_bytes_per_parameter", &about, None, bytes);
}

/// A series for each metric of the learners, at most 32.
fn named(means: &BTreeMap<String, f64>) -> impl Iterator<Item = (Labels, f64)> {
    means.iter().map(|(name, mean)| (label("metric", name), *mean))
}

fn certificates(metrics: &mut Metrics, certificates: &[Certificate]) {
    let mut expiry = Vec::new();
    let mut renewal = Vec::new();
    for certificate in certificates {
        let labels = labels(("kind", certificate.kind), ("name", &certificate.name));
        expiry.push((labels.clone(), certificate.ends_ms as f64 / 1000.0));
        renewal.push((labels, certificate.renewal_ms as f64 / 1000.0));
    }
    let about = "When a certificate ends, since 1970; of those that clients use, the thousand that end first";
    metrics.gauges("fl_certificate_expiry_timestamp", about, Some(Unit::Seconds), expiry);
    let about = "When a certificate is to be replaced, since 1970: at two thirds of its lifetime; an authority 60 days before its end";
    metrics.gauges("fl_certificate_renewal_timestamp", about, Some(Unit::Seconds), renewal);
}

#[cfg(test)]
mod tests;
