//! What the bytes on the sockets were for, in each direction.

use crate::queries::filter::Filter;
use crate::queries::query::Query;
use crate::report::Report;
use crate::table::Table;
use crate::table::line::line;
use crate::table::schema::Schema;

pub(super) static QUERY: Query = Query {
    name: "direction",
    about: "a kind of bytes on the sockets, in each direction",
    schemas: &[Schema::of::<DirectionLine>(
        "direction",
        "One line per direction and kind of bytes; the kinds of a direction add up to its sockets.",
    )],
    answer: |report, filter| Ok(Table::of(directions(report, filter).iter())),
};

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

pub(crate) fn directions(report: &Report, filter: &Filter) -> Vec<DirectionLine> {
    let flow = filter.flow(report);
    let lines = flow.present_kinds().map(|(direction, kind, bytes)| {
        let all = match direction {
            "up" => flow.socket_up,
            _ => flow.socket_down,
        };
        DirectionLine {
            direction: direction.to_owned(),
            kind: kind.to_owned(),
            bytes,
            share: (all > 0).then(|| bytes as f64 / all as f64),
        }
    });
    lines.collect()
}
