//! Connections and calls at the server's ports.

use super::registry::{Labels, Metrics};
use crate::accounting::edge::{Edge, PortCounters};

fn labels(port: &str, name: &'static str, value: &str) -> Labels {
    vec![("port", port.to_owned()), (name, value.to_owned())]
}

pub(super) fn write(metrics: &mut Metrics, edge: &Edge) {
    let each = |value: fn(&PortCounters) -> u64| {
        let port =
            move |(port, counters): (&str, &PortCounters)| (vec![("port", port.to_owned())], value(counters) as f64);
        edge.ports().map(port)
    };
    metrics.counters(
        "fl_edge_accepted",
        "Connections that reached a port, refused ones included",
        None,
        each(PortCounters::total),
    );
    let states = edge.ports().into_iter().flat_map(|(port, counters)| {
        let series = move |(state, count): (&str, u64)| (labels(port, "state", state), count as f64);
        counters.states().map(series)
    });
    metrics.gauges("fl_edge_connections", "Connections by state", None, states);
    let closed = edge.ports().into_iter().flat_map(|(port, counters)| {
        let series = counters.closings();
        series.map(move |(why, count)| (labels(port, "reason", why.label()), count as f64))
    });
    metrics.counters(
        "fl_edge_closed",
        "Connections that a bound or a failed check closed",
        None,
        closed,
    );
    metrics.counters(
        "fl_edge_calls",
        "Calls, refused ones included",
        None,
        each(PortCounters::calls),
    );
    let limited = edge.ports().into_iter().flat_map(|(port, counters)| {
        let series = counters.limits();
        series.map(move |(limit, count)| (labels(port, "limit", limit.label()), count as f64))
    });
    metrics.counters(
        "fl_edge_calls_limited",
        "Calls that waited because their caller made many, or were refused because too many were open",
        None,
        limited,
    );
    let outcomes = edge.enrollments();
    let outcomes = outcomes.map(|(outcome, count)| (vec![("outcome", outcome.label().to_owned())], count as f64));
    metrics.counters(
        "fl_enrollments",
        "Requests for a certificate by their end",
        None,
        outcomes,
    );
    let renewals = edge.renewals();
    let renewals = renewals.map(|(outcome, count)| (vec![("outcome", outcome.to_owned())], count as f64));
    metrics.counters("fl_renewals", "Renewals of certificates by their end", None, renewals);
    let open = f64::from(u8::from(edge.enrollment_is_open()));
    metrics.gauge("fl_enrollment_open", "1 while the enrollment port is open", open);
}
