//! `/metrics`: what the running server counts, in the OpenMetrics text that Prometheus reads.
//!
//! Counters begin with the process. Those of the ledger move when a round closes, because only then bytes are booked.

use fmt::Write as _;
use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::board::Known;
use super::view::View;

type Labels = Vec<(&'static str, String)>;
type Number = Gauge<f64, AtomicU64>;

/// The text, of a view of the run and what the board knows.
///
/// # Errors
/// None that can happen: a text can be written to.
pub(crate) fn text(view: &View, known: &Known, version: u64) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("fl");
    let mut metrics = Metrics(&mut registry);
    let none: Labels = Vec::new();
    let run: Labels = vec![("run", view.run.clone())];
    let direction = |name: &str| vec![("direction", name.to_owned())];
    let Known { closed, evaluated, .. } = known;

    metrics.counters(
        "socket",
        "Bytes on the sockets of all clients, counted under TLS",
        Some(Unit::Bytes),
        [
            (direction("up"), view.throughput.socket_up),
            (direction("down"), view.throughput.socket_down),
        ],
    );
    let kinds = closed.flow.kinds();
    let kind = |(way, kind, bytes): (&str, &str, u64)| {
        let labels = vec![("direction", way.to_owned()), ("kind", kind.to_owned())];
        (labels, bytes)
    };
    metrics.counters(
        "ledger",
        "Bytes of closed rounds by what they were for",
        Some(Unit::Bytes),
        kinds.map(kind),
    );
    let count = |n: u64| [(none.clone(), n)];
    metrics.counters("rounds_closed", "Rounds closed", None, count(closed.rounds));
    metrics.counters("updates_accepted", "Updates counted", None, count(closed.updates));
    metrics.counters(
        "upload_retries",
        "Uploads that were resumed or sent again",
        None,
        count(closed.flow.retries),
    );
    metrics.counters(
        "connections",
        "Connections that clients opened",
        None,
        count(closed.flow.connections),
    );
    metrics.counters(
        "alerts",
        "Alerts: above all rounds whose ledger differs from what the sockets carried",
        None,
        count(closed.alerts),
    );

    let one = |number: f64| [(none.clone(), number)];
    metrics.gauges("run_info", "The run that is served", None, [(run, 1.0)]);
    metrics.gauges("round", "The open round, or the newest", None, one(view.round as f64));
    metrics.gauges("rounds_planned", "Rounds of the run", None, one(view.planned as f64));
    metrics.gauges("model_version", "Newest model version", None, one(version as f64));
    let phases = ["waiting", "training", "closing", "evaluating", "done", "failed"];
    let phases = phases.map(|phase| {
        (
            vec![("phase", phase.to_owned())],
            f64::from(u8::from(phase == view.phase)),
        )
    });
    metrics.gauges("phase", "1 for the phase that the run is in", None, phases);
    if let Some(deadline) = view.deadline_ms {
        metrics.gauges(
            "round_deadline_timestamp",
            "When the open round is given up, since 1970",
            Some(Unit::Seconds),
            one(deadline as f64 / 1000.0),
        );
    }
    metrics.gauges(
        "clients_connected",
        "Clients that are connected",
        None,
        one(view.present.len() as f64),
    );
    let states = ["training", "sending", "done", "absent"].map(|state| {
        let clients = view.cohort.iter().filter(|member| member.state == state).count();
        (vec![("state", state.to_owned())], clients as f64)
    });
    metrics.gauges(
        "cohort_clients",
        "Clients of the open round by what they do",
        None,
        states,
    );
    if let Some(last) = &closed.last {
        metrics.gauges(
            "round_duration",
            "From the opening of the newest closed round to its model",
            Some(Unit::Seconds),
            one(last.seconds),
        );
        metrics.gauges(
            "round_socket",
            "Bytes on the sockets while the newest closed round was open",
            Some(Unit::Bytes),
            [
                (direction("up"), last.flow.socket_up as f64),
                (direction("down"), last.flow.socket_down as f64),
            ],
        );
        metrics.gauges(
            "training_loss",
            "Mean training loss of the newest closed round",
            None,
            one(last.loss),
        );
        metrics.gauges(
            "frame_bits_per_parameter",
            "Bits of frame for each parameter in the newest closed round",
            None,
            [(direction("up"), last.bits_up), (direction("down"), last.bits_down)],
        );
    }
    if let Some(seen) = evaluated {
        metrics.gauges(
            "model_accuracy",
            "Share of held-out examples that the newest evaluated model classifies correctly",
            Some(Unit::Ratios),
            one(seen.accuracy),
        );
        metrics.gauges("model_loss", "Its mean loss over them", None, one(seen.loss));
    }
    let certificates = view.certificates.iter().map(|certificate| {
        let labels = vec![
            ("kind", certificate.kind.to_owned()),
            ("name", certificate.name.clone()),
        ];
        (labels, certificate.ends_ms as f64 / 1000.0)
    });
    metrics.gauges(
        "certificate_expiry_timestamp",
        "When a certificate ends, since 1970",
        Some(Unit::Seconds),
        certificates,
    );
    let mut out = String::new();
    encode(&mut out, &registry)?;
    out.write_str("")?;
    Ok(out)
}

struct Metrics<'a>(&'a mut Registry);

impl Metrics<'_> {
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).inc_by(value);
        }
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }

    fn gauges(&mut self, name: &str, help: &str, unit: Option<Unit>, values: impl IntoIterator<Item = (Labels, f64)>) {
        let family = Family::<Labels, Number>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).set(value);
        }
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }
}
