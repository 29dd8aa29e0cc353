//! Quality against bytes, with the Pareto front.

use std::fmt::Write as _;

use super::section::Section;
use super::svg::{Axis, END, HALF, begin, escape, series};
use crate::score::bytes;
use crate::sweep::statistics::Quality;
use crate::sweep::summary::Summary;

/// Points are named beside their marks up to so many.
const NAMED: usize = 14;

/// The chart of a phase; empty if no quality was measured.
pub(super) fn chart(section: &Section<'_>) -> String {
    let Some(quality) = section.outcome.quality else {
        return String::new();
    };
    let sent = |row: &Summary| row.bytes_up + row.bytes_down;
    let rows: Vec<(&Summary, usize)> = section.outcome.rows.iter().zip(section.colors()).collect();
    let seeds = section.groups.iter().flat_map(|group| &group.records);
    let x = Axis::bytes(rows.iter().map(|(row, _)| sent(row)));
    let y = Axis::linear(seeds.filter_map(|record| quality.tail(&record.score)), false);
    let about = format!("{} of the last three rounds against bytes", quality.name());
    let mut out = begin(
        &HALF,
        &x,
        &y,
        ["bytes of a run, both directions", quality.name()],
        &about,
    );
    let place = |bytes: f64, value: f64| (HALF.x(x.at(bytes)), HALF.y(y.at(value)));

    let mut front: Vec<&Summary> = rows.iter().map(|(row, _)| *row).filter(|row| row.front).collect();
    front.sort_by(|a, b| sent(a).total_cmp(&sent(b)));
    let corners = front.iter().filter_map(|row| Some(place(sent(row), row.tail?.mean)));
    let mut path = String::new();
    for (at, (x, y)) in corners.enumerate() {
        let _ = if at == 0 {
            write!(path, "M{x:.1} {y:.1}")
        } else {
            write!(path, "H{x:.1}V{y:.1}")
        };
    }
    let _ = writeln!(out, "<path class=\"front\" d=\"{path}\"/>");

    for ((row, color), group) in rows.iter().zip(section.groups) {
        let color = series(*color);
        for record in &group.records {
            if let Some(value) = quality.tail(&record.score) {
                let (x, y) = place(record.score.sent() as f64, value);
                let _ = writeln!(
                    out,
                    "<circle class=\"seed {color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>"
                );
            }
        }
        if let Some(tail) = row.tail.filter(|tail| tail.mean.is_finite()) {
            let (x, y) = place(sent(row), tail.mean);
            let ring = if row.chosen && section.is_choice() {
                " chosen"
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "<circle class=\"mean {color}{ring}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"><title>{}</title></circle>",
                escape(&about_row(&section.name(row), row, quality))
            );
        }
    }
    if rows.len() <= NAMED {
        names(&mut out, section, place);
    }
    out.push_str(END);
    out
}

/// Writes the name of each point beside its mark, moved down where it would cover another.
fn names(out: &mut String, section: &Section<'_>, place: impl Fn(f64, f64) -> (f64, f64)) {
    let mut taken: Vec<(f64, f64, f64)> = Vec::new();
    let mut order: Vec<(&Summary, f64, f64)> = Vec::new();
    for row in &section.outcome.rows {
        if let Some(tail) = row.tail.filter(|tail| tail.mean.is_finite()) {
            let (x, y) = place(row.bytes_up + row.bytes_down, tail.mean);
            order.push((row, x, y));
        }
    }
    order.sort_by(|a, b| a.2.total_cmp(&b.2));
    for (row, x, y) in order {
        let text = section.name(row);
        let width = 6.4 * text.chars().count() as f64;
        let is_right = x + 12.0 + width < HALF.width;
        let from = if is_right { x + 11.0 } else { x - 11.0 - width };
        let covers = |at: f64| {
            taken
                .iter()
                .any(|(other, width_of, y)| (at - y).abs() < 13.0 && from < other + width_of && *other < from + width)
        };
        // Below one another, and never outside of the chart.
        let lines = (0..40).map(|line| y + 4.0 + 13.0 * f64::from(line));
        let below = lines.clone().find(|at| !covers(*at) && *at < HALF.y(0.0));
        let above = lines
            .map(|at| 2.0 * (y + 4.0) - at)
            .find(|at| !covers(*at) && *at > HALF.top);
        let at = below.or(above).unwrap_or(y + 4.0);
        taken.push((from, width, at));
        let _ = writeln!(
            out,
            "<text class=\"label\" x=\"{from:.1}\" y=\"{at:.1}\">{}</text>",
            escape(&text)
        );
    }
}

fn about_row(name: &str, row: &Summary, quality: Quality) -> String {
    let digits = quality.digits();
    format!(
        "{name}: {} {}, {} ({:.1}x), {} seeds",
        crate::sweep::text::spread(row.tail, digits),
        quality.name(),
        bytes((row.bytes_up + row.bytes_down) as u64),
        row.ratio,
        row.seeds.len()
    )
}
