//! What the bytes on the sockets were for, in each direction.

use crate::columns::line;
use crate::flow::Flow;
use crate::query::Filter;
use crate::report::Report;

line! {
    /// Bytes of one kind in one direction.
    pub struct DirectionLine {
        /// `up` from the clients, `down` to them.
        direction: String [""],
        /// What they were: `update`, `refused`, `aborted`, `evaluation`, `control`, `heartbeat`, `transport`, `steps`, `snapshot`.
        kind: String [""],
        /// Bytes.
        bytes: u64 ["B"],
        /// Share of all bytes of the direction.
        share: Option<f64> [""],
    }
}

/// The flow of the lines asked for.
pub(crate) fn flow(report: &Report, filter: &Filter) -> Flow {
    match (filter.round, &filter.client) {
        (None, None) => report.totals,
        (None, Some(client)) => report.client(client).map(|line| line.flow).unwrap_or_default(),
        (Some(round), client) => {
            let mut flow = Flow::default();
            let lines = report.participations.iter().filter(|line| line.round == round);
            lines
                .filter(|line| client.as_ref().is_none_or(|client| line.client == *client))
                .for_each(|line| flow.add(&line.flow));
            flow
        }
    }
}

pub(crate) fn directions(report: &Report, filter: &Filter) -> Vec<DirectionLine> {
    let flow = flow(report, filter);
    let line = |(direction, kind, bytes): (&str, &str, u64)| {
        let all = if direction == "up" {
            flow.socket_up
        } else {
            flow.socket_down
        };
        DirectionLine {
            direction: direction.to_owned(),
            kind: kind.to_owned(),
            bytes,
            share: (all > 0).then(|| bytes as f64 / all as f64),
        }
    };
    flow.kinds().map(line).to_vec()
}
