//! The tables of a sweep as text.

use super::outcome::PhaseOutcome;
use super::phase::Phase;
use super::summary::Summary;
use crate::score::bytes;
use crate::statistics::{Estimate, Quality, Spread};

/// The table of one phase: a heading, a row for each point, the chosen one of several marked with `*`.
pub(super) fn table(outcome: &PhaseOutcome) -> String {
    let mut lines = cells(outcome);
    let is_choice = outcome.phase == Phase::Choose;
    let marks = outcome
        .rows
        .iter()
        .map(|row| if row.chosen && is_choice { "*" } else { "" });
    for (line, mark) in lines.iter_mut().zip(std::iter::once("").chain(marks)) {
        line.insert(0, mark.to_owned());
    }
    format!("{}\n{}", outcome.heading(), align(&lines))
}

/// The cells of a table: its header, then a line for each row.
pub(super) fn cells(outcome: &PhaseOutcome) -> Vec<Vec<String>> {
    let quality = outcome.quality.map_or("quality", Quality::name);
    let header = [
        "variant",
        "point",
        quality,
        "last 3 rounds",
        "difference",
        "of last 3",
        "bytes",
        "bits u/d",
        "ratio",
        "no first",
        &outcome.reach_heading(),
    ];
    let header = header.map(str::to_owned).to_vec();
    let rows = outcome.rows.iter().map(|row| line(row, outcome.quality));
    let mut lines: Vec<_> = std::iter::once(header).chain(rows).collect();
    if outcome.has_average() {
        let digits = outcome.quality.map_or(2, Quality::digits);
        lines[0].splice(AVERAGED..AVERAGED, ["averaged", "of averaged"].map(str::to_owned));
        for (line, row) in lines.iter_mut().skip(1).zip(&outcome.rows) {
            let cells = [spread(row.averaged, digits), estimate(row.averaged_difference, digits)];
            line.splice(AVERAGED..AVERAGED, cells);
        }
    }
    lines
}

/// Where the columns of the averaged model are, after those of the last rounds.
const AVERAGED: usize = 6;

pub(super) fn line(row: &Summary, quality: Option<Quality>) -> Vec<String> {
    let digits = quality.map_or(2, Quality::digits);
    let number = match row.label.as_str() {
        "" => String::new(),
        label => format!("{}: {label}", row.point),
    };
    let failed = match row.failed {
        0 => String::new(),
        failed => format!(" ({failed} failed)"),
    };
    let mut cells = vec![
        row.variant.clone(),
        format!("{number}{failed}"),
        spread(row.last, digits),
        spread(row.tail, digits),
        estimate(row.last_difference, digits),
        estimate(row.tail_difference, digits),
        bytes((row.bytes_up + row.bytes_down) as u64),
        format!("{:.3}/{:.3}", row.bits.0, row.bits.1),
        format!("{:.1}x", row.ratio),
        format!("{:.1}x", row.ratio_without_first),
        reach(row),
    ];
    if row.seeds.is_empty() {
        cells[AVERAGED..AVERAGED + 4].fill("-".to_owned());
    }
    cells
}

pub(super) fn spread(value: Option<Spread>, digits: usize) -> String {
    let shown = value.map(|Spread { mean, deviation }| within(format!("{mean:.digits$}"), deviation, digits));
    shown.unwrap_or_else(|| "-".to_owned())
}

pub(super) fn estimate(value: Option<Estimate>, digits: usize) -> String {
    let shown = value.map(|Estimate { mean, half_width }| within(format!("{mean:+.digits$}"), half_width, digits));
    shown.unwrap_or_else(|| "-".to_owned())
}

fn within(mean: String, more: Option<f64>, digits: usize) -> String {
    match more {
        Some(more) => format!("{mean} ± {more:.digits$}"),
        None => mean,
    }
}

/// The ratio of bytes to reach the baseline's quality, and under how many seeds if not under all.
pub(super) fn reach(row: &Summary) -> String {
    match row.reach {
        None => "-".to_owned(),
        Some(reach) => {
            let of = if reach.reached == row.seeds.len() {
                String::new()
            } else {
                format!(" ({} of {})", reach.reached, row.seeds.len())
            };
            reach
                .ratio
                .map_or(format!("never{of}"), |ratio| format!("{ratio:.1}x{of}"))
        }
    }
}

/// Columns as wide as their widest cell; the first three to the left, the others to the right.
pub(super) fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for line in lines {
        let cells = line
            .iter()
            .zip(&widths)
            .enumerate()
            .filter(|(_, (_, width))| **width > 0);
        let cells: Vec<String> = cells
            .map(|(at, (cell, &width))| match at {
                0..3 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}
