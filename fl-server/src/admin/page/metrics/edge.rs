//! Connections and calls at the server's ports.

use super::registry::{Metrics, flag, label, labels};
use crate::accounting::edge::Edge;

pub(super) fn write(metrics: &mut Metrics, edge: &Edge) {
    let mut accepted = Vec::new();
    let mut states = Vec::new();
    let mut closed = Vec::new();
    let mut calls = Vec::new();
    let mut limited = Vec::new();
    for (port, counters) in edge.ports() {
        let of = ("port", port);
        accepted.push((label("port", port), counters.total() as f64));
        calls.push((label("port", port), counters.calls() as f64));
        for (state, count) in counters.states() {
            states.push((labels(of, ("state", state)), count as f64));
        }
        for (why, count) in counters.closings() {
            closed.push((labels(of, ("reason", why.label())), count as f64));
        }
        for (limit, count) in counters.limits() {
            limited.push((labels(of, ("limit", limit.label())), count as f64));
        }
    }
    let about = "Connections that reached a port, refused ones included";
    metrics.counters("fl_edge_accepted", about, None, accepted);
    metrics.gauges("fl_edge_connections", "Connections by state", None, states);
    let about = "Connections that a bound or a failed check closed";
    metrics.counters("fl_edge_closed", about, None, closed);
    metrics.counters("fl_edge_calls", "Calls, refused ones included", None, calls);
    let about = "Calls that waited because their caller made many, or were refused because too many were open";
    metrics.counters("fl_edge_calls_limited", about, None, limited);
    let outcomes = edge.enrollments();
    let outcomes = outcomes.map(|(outcome, count)| (label("outcome", outcome.label()), count as f64));
    let about = "Requests for a certificate by their end";
    metrics.counters("fl_enrollments", about, None, outcomes);
    let renewals = edge.renewals();
    let renewals = renewals.map(|(outcome, count)| (label("outcome", outcome), count as f64));
    metrics.counters("fl_renewals", "Renewals of certificates by their end", None, renewals);
    let about = "1 while the enrollment port is open";
    metrics.gauge("fl_enrollment_open", about, flag(edge.enrollment_is_open()));
}
