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
use crate::accounting::sample::Named;
use crate::clock::Millis;
use crate::reporting::moment::Moved;
use crate::telemetry::event::RoundSummary;
use crate::telemetry::gauge::TensorGauge;
use crate::telemetry::status::StatusSnapshot;
pub(crate) use process::Process;
use registry::{Labels, Metrics, one};

/// The inputs of the metrics.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) view: &'a View,
    pub(crate) known: &'a StatusSnapshot,
    /// Newest model version.
    pub(crate) version: u64,
    /// Clients' bytes.
    pub(crate) clients: &'a [Named],
    /// Bytes since the newest round closed, or since the start.
    pub(crate) open: Flow,
    pub(crate) edge: &'a Edge,
    pub(crate) process: Process,
}

const ROUND_CLOSED: &str = "of the newest closed round";

/// The metrics as OpenMetrics text.
///
/// # Errors
/// None in practice: writing to a string does not fail.
pub(crate) fn text(measured: &Inputs<'_>) -> Result<String, fmt::Error> {
    let Inputs { view, known, .. } = measured;
    let mut metrics = Metrics::default();
    measured.process.write(&mut metrics);
    let labels = |name, value: &str| vec![(name, value.to_owned())];
    let build = labels("version", env!("CARGO_PKG_VERSION"));
    metrics.gauges("fl_build_info", "The program", None, [(build, 1.0)]);
    metrics.gauges(
        "fl_run_info",
        "The run that is served",
        None,
        [(labels("run", &view.run), 1.0)],
    );
    bytes(&mut metrics, measured);
    counts(&mut metrics, known);
    edge::write(&mut metrics, measured.edge);
    standing(&mut metrics, view, measured.version);
    if let Some(last) = &known.closed.last {
        newest(&mut metrics, last);
    }
    if let Some(seen) = &known.evaluated {
        let ratio = Some(Unit::Other("ratio".to_owned()));
        let about = "Share of held-out examples that the newest evaluated model classifies correctly";
        metrics.gauges(
            "fl_model_accuracy",
            about,
            ratio,
            seen.accuracy.map(one).into_iter().flatten(),
        );
        let about = "Exponential of the loss of the newest evaluated model, if it is a language model";
        metrics.gauges(
            "fl_model_perplexity",
            about,
            None,
            seen.perplexity.map(one).into_iter().flatten(),
        );
        let about = "Means of the clients' metrics of the newest evaluated model";
        metrics.gauges("fl_model_metric", about, None, named(&seen.metrics));
        metrics.gauge(
            "fl_model_loss",
            "Mean loss of the newest evaluated model over them",
            seen.loss,
        );
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

fn direction(name: &str) -> Labels {
    vec![("direction", name.to_owned())]
}

fn bytes(metrics: &mut Metrics, measured: &Inputs<'_>) {
    let throughput = &measured.view.throughput;
    metrics.counters(
        "fl_socket",
        "Bytes on the sockets of all clients, counted under TLS",
        Some(Unit::Bytes),
        [
            (direction("up"), throughput.socket_up as f64),
            (direction("down"), throughput.socket_down as f64),
        ],
    );
    let kind = |(way, kind, bytes): (&str, &str, u64)| {
        let labels = vec![("direction", way.to_owned()), ("kind", kind.to_owned())];
        (labels, bytes as f64)
    };
    metrics.counters(
        "fl_ledger",
        "Bytes of closed rounds by what they were for",
        Some(Unit::Bytes),
        measured.known.closed.flow.kinds().map(kind),
    );
    let client = |named: &Named| {
        let labels = |way: &str| vec![("client", named.client.clone()), ("direction", way.to_owned())];
        [
            (labels("up"), named.socket.0 as f64),
            (labels("down"), named.socket.1 as f64),
        ]
    };
    metrics.counters(
        "fl_client_socket",
        "Bytes on the sockets of each client; of those that came after the first 200 together, as `*`",
        Some(Unit::Bytes),
        measured.clients.iter().flat_map(client),
    );
    metrics.gauges(
        "fl_ledger_open",
        "Bytes on the sockets since the newest round closed, which no ledger row of a closed round has",
        Some(Unit::Bytes),
        ways(measured.open.socket_up, measured.open.socket_down),
    );
    if let Some(moved) = &measured.view.moved {
        self::moved(metrics, moved);
    }
}

fn ways(up: u64, down: u64) -> [(Labels, f64); 2] {
    [(direction("up"), up as f64), (direction("down"), down as f64)]
}

/// Bytes that the run has moved, in all its processes, equal to the report.
fn moved(metrics: &mut Metrics, moved: &Moved) {
    metrics.gauges(
        "fl_ledger_pending",
        "Bytes on the sockets that are not on disk yet",
        Some(Unit::Bytes),
        ways(moved.pending_up, moved.pending_down),
    );
    metrics.gauges(
        "fl_run_socket",
        "Bytes that the run has moved, since it was begun",
        Some(Unit::Bytes),
        ways(moved.socket_up, moved.socket_down),
    );
    let about =
        "Bytes of fp32 federated averaging over those of the run, for the rounds whose models have reached clients";
    let ratio = Some(moved.ratio).filter(|ratio| *ratio > 0.0).map(one);
    metrics.gauges(
        "fl_run_saving",
        about,
        Some(Unit::Other("ratio".to_owned())),
        ratio.into_iter().flatten(),
    );
    let balanced = f64::from(u8::from(moved.balanced));
    let about = "1 if the ledger is what the sockets have carried, to the byte";
    metrics.gauge("fl_ledger_balanced", about, balanced);
}

fn counts(metrics: &mut Metrics, known: &StatusSnapshot) {
    let closed = &known.closed;
    let seconds = "From the opening to the model of each closed round, added up";
    metrics.counter("fl_rounds_closed", "Rounds closed", closed.rounds as f64);
    metrics.counters("fl_rounds_closed", seconds, Some(Unit::Seconds), one(closed.seconds));
    metrics.counter("fl_updates_accepted", "Updates counted", closed.updates as f64);
    metrics.counter(
        "fl_updates_refused",
        "Updates refused, after they had arrived",
        closed.refused as f64,
    );
    let refused = known.turned.counts();
    metrics.counters(
        "fl_joins_refused",
        "Times that a client was turned away",
        None,
        refused.map(|(reason, count)| (vec![("reason", reason.label().to_owned())], count as f64)),
    );
    let retries = "Uploads that were resumed or sent again, of closed rounds";
    metrics.counter("fl_upload_retries", retries, closed.flow.retries as f64);
    let connections = "Connections that clients opened, of closed rounds";
    metrics.counter("fl_connections_opened", connections, closed.flow.connections as f64);
    metrics.counter(
        "fl_alerts",
        "Alerts: rounds whose ledger differs from what the sockets carried",
        closed.alerts as f64,
    );
    metrics.counter(
        "fl_warnings",
        "Warnings: tensors that were sent at next to nothing for several rounds",
        closed.warnings as f64,
    );
}

/// Tensors with series, in each direction.
const TENSORS: usize = 50;

fn tensors(metrics: &mut Metrics, gauges: &[TensorGauge]) {
    let mut shown = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        let mut gauges: Vec<_> = gauges.iter().filter(|gauge| gauge.direction == direction).collect();
        gauges.sort_by(|a, b| {
            let cosine = |gauge: &TensorGauge| gauge.cosine().unwrap_or(1.0);
            let starved = b.starved.cmp(&a.starved);
            starved.then(cosine(a).total_cmp(&cosine(b)))
        });
        shown.extend(gauges.into_iter().take(TENSORS));
    }
    let mut family = |name, about, unit: Option<&str>, value: fn(&TensorGauge) -> Option<f64>| {
        let series = shown.iter().filter_map(|gauge| {
            let labels = vec![
                ("direction", gauge.direction.name().to_owned()),
                ("tensor", gauge.tensor.clone()),
            ];
            Some((labels, value(gauge)?))
        });
        let about = format!("{about} {ROUND_CLOSED}");
        metrics.gauges(name, &about, unit.map(|unit| Unit::Other(unit.to_owned())), series);
    };
    let ratio = Some("ratio");
    family(
        "fl_tensor_cosine",
        "Mean cosine of what is received and the update before compression",
        ratio,
        TensorGauge::cosine,
    );
    family(
        "fl_tensor_energy_kept",
        "Mean share of energy kept by the frames",
        ratio,
        |gauge| gauge.fidelity?.mean_kept(),
    );
    family(
        "fl_tensor_density",
        "Share of values that are not zero",
        ratio,
        |gauge| Some(gauge.density),
    );
    family(
        "fl_tensor_bytes_per_parameter",
        "Bytes of frame per parameter",
        None,
        |gauge| Some(gauge.bits / 8.0),
    );
    family(
        "fl_tensor_rank",
        "Mean rank of the frames that have one,",
        None,
        |gauge| gauge.rank,
    );
    family(
        "fl_tensor_entropy",
        "Entropy of the energy of the aggregated updates, or of the model update,",
        Some("nats"),
        |gauge| gauge.entropy,
    );
    family(
        "fl_tensor_residual_age",
        "Age of the oldest residual, in updates of its sender,",
        None,
        |gauge| Some(gauge.fidelity?.oldest.into()),
    );
    family(
        "fl_tensor_starved",
        "Rounds in a row in which a tensor was sent at next to nothing, as",
        Some("rounds"),
        |gauge| Some(gauge.starved.into()),
    );
}

/// The progress of the run.
fn standing(metrics: &mut Metrics, view: &View, version: u64) {
    metrics.gauge("fl_round_number", "The open round, or the newest", view.round as f64);
    metrics.gauge("fl_rounds_planned", "Rounds of the run", view.planned as f64);
    metrics.gauge(
        "fl_round_attempts",
        "Times the open round was opened, or 0",
        view.attempt.into(),
    );
    metrics.gauge("fl_model_version", "Newest model version", version as f64);
    let phases = ["waiting", "training", "closing", "evaluating", "done", "failed"].map(|phase| {
        let here = f64::from(u8::from(phase == view.phase));
        (vec![("phase", phase.to_owned())], here)
    });
    metrics.gauges("fl_phase", "1 for the phase that the run is in", None, phases);
    let mut moment = |name, about, at: Option<Millis>| {
        // In the time of day: scrapers compare it with their clock.
        let wall = |at: Millis| at.saturating_add(view.wall_ms).saturating_sub(view.now_ms);
        let at = at.map(|at| (Labels::new(), wall(at) as f64 / 1000.0));
        metrics.gauges(name, about, Some(Unit::Seconds), at);
    };
    moment(
        "fl_round_opened_timestamp",
        "When the open round was opened, since 1970",
        view.opened_ms,
    );
    let about = "When the open round is closed with whom has answered, or given up, since 1970";
    moment("fl_round_deadline_timestamp", about, view.deadline_ms);
    let about = "Clients that are connected";
    metrics.gauge("fl_clients_connected", about, view.present.len() as f64);
    let about = "Connected clients that take part in no round for now";
    metrics.gauge("fl_clients_paused", about, view.paused.len() as f64);
    let states = ["training", "sending", "done", "paused", "absent"].map(|state| {
        let clients = view.cohort.iter().filter(|member| member.state == state).count();
        (vec![("state", state.to_owned())], clients as f64)
    });
    metrics.gauges(
        "fl_cohort_clients",
        "Clients of the open round by what they do",
        None,
        states,
    );
    let late = view.cohort.iter().filter(|member| member.late).count();
    let about = "Clients of the open round that it could close without";
    metrics.gauge("fl_cohort_late_clients", about, late as f64);
    let sending = view.cohort.iter().filter(|member| member.state == "sending");
    let left: u64 = sending.map(|member| member.total.saturating_sub(member.received)).sum();
    let about = "Bytes of frames that are still to come of the uploads in progress";
    metrics.gauges("fl_uploads_remaining", about, Some(Unit::Bytes), one(left as f64));
}

fn newest(metrics: &mut Metrics, last: &RoundSummary) {
    let about = |what: &str| format!("{what} {ROUND_CLOSED}");
    let seconds = about("From opening to model");
    metrics.gauges(
        "fl_last_round_duration",
        &seconds,
        Some(Unit::Seconds),
        one(last.seconds),
    );
    let sockets = [
        (direction("up"), last.flow.socket_up as f64),
        (direction("down"), last.flow.socket_down as f64),
    ];
    metrics.gauges(
        "fl_last_round_socket",
        &about("Bytes on the sockets"),
        Some(Unit::Bytes),
        sockets,
    );
    metrics.gauge("fl_last_round_updates", &about("Updates"), last.updates as f64);
    metrics.gauge("fl_last_round_training_loss", &about("Mean training loss"), last.loss);
    let what = about("Means of the clients' metrics of the training");
    metrics.gauges("fl_last_round_training_metric", &what, None, named(&last.metrics));
    let bytes = [
        (direction("up"), last.bits_up / 8.0),
        (direction("down"), last.bits_down / 8.0),
    ];
    let what = about("Bytes of frame for each parameter of the updates and of the step");
    metrics.gauges("fl_last_round_bytes_per_parameter", &what, None, bytes);
}

/// A series for each metric of the learners, at most 32.
fn named(means: &BTreeMap<String, f64>) -> impl Iterator<Item = (Labels, f64)> {
    means.iter().map(|(name, mean)| (vec![("metric", name.clone())], *mean))
}

fn certificates(metrics: &mut Metrics, certificates: &[Certificate]) {
    let seconds = |millis: fn(&Certificate) -> i64| {
        certificates.iter().map(move |certificate| {
            let labels = vec![
                ("kind", certificate.kind.to_owned()),
                ("name", certificate.name.clone()),
            ];
            (labels, millis(certificate) as f64 / 1000.0)
        })
    };
    metrics.gauges(
        "fl_certificate_expiry_timestamp",
        "When a certificate ends, since 1970; of those that clients use, the thousand that end first",
        Some(Unit::Seconds),
        seconds(|certificate| certificate.ends_ms),
    );
    metrics.gauges(
        "fl_certificate_renewal_timestamp",
        "When a certificate is to be replaced, since 1970: at two thirds of its lifetime; an authority 60 days before its end",
        Some(Unit::Seconds),
        seconds(|certificate| certificate.renewal_ms),
    );
}

#[cfg(test)]
mod tests;
