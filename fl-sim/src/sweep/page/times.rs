//! Time against link: the seconds of all rounds if every client had the link of the column.

use std::fmt::Write as _;

use super::svg::escape;
use crate::score::LinkTime;
use crate::sweep::outcome::PhaseOutcome;
use crate::sweep::summary::Summary;

/// The table of a phase; empty if real sockets carried the messages.
pub(super) fn table(outcome: &PhaseOutcome) -> String {
    let Some(first) = outcome.rows.iter().find(|row| !row.times.is_empty()) else {
        return String::new();
    };
    let mut out = String::from(
        "<h3>Time against link <small>seconds of all rounds on the virtual clock, training included: links of the file, the mean \
         time from the first update of a round to its last on them, then \
         every client on a link of these megabits a second and milliseconds a way</small></h3>\n\
         <div class=\"wide\"><table>\n<thead><tr><th>variant</th><th>point</th><th>own links</th><th>spread</th>",
    );
    for LinkTime { mbit, latency_ms, .. } in &first.times {
        let _ = write!(out, "<th>{mbit:.0}<small>{latency_ms:.0} ms</small></th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &outcome.rows {
        let cells: Vec<String> = cells(row)
            .iter()
            .map(|cell| format!("<td>{}</td>", escape(cell)))
            .collect();
        let _ = writeln!(out, "<tr>{}</tr>", cells.concat());
    }
    out.push_str("</tbody></table></div>\n");
    out
}

fn cells(row: &Summary) -> Vec<String> {
    let seconds = row.times.iter().map(|time| time.seconds);
    let own = row.seconds.map_or("-".to_owned(), text);
    let spread = row.spread.map_or("-".to_owned(), text);
    [row.variant.clone(), row.label.clone(), own, spread]
        .into_iter()
        .chain(seconds.map(text))
        .collect()
}

fn text(seconds: f64) -> String {
    match seconds {
        s if s < 99.95 => format!("{s:.1}"),
        s => format!("{s:.0}"),
    }
}
