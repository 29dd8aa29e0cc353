//! The tables of a sweep as text.

use super::outcome::PhaseOutcome;
use super::phase::Phase;
use super::statistics::{Estimate, Quality, Spread};
use super::summary::Summary;
use crate::score::bytes;

/// The table of one phase: a heading, a row for each point, the chosen one of several marked with `*`.
pub(super) fn table(outcome: &PhaseOutcome) -> String {
    let digits = outcome.quality.map_or(2, Quality::digits);
    let quality = outcome.quality.map_or("quality", Quality::name);
    let mut lines = vec![
        [
            "",
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
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    lines[0].push(outcome.reach_heading());
    for row in &outcome.rows {
        let mark = if row.chosen && outcome.phase == Phase::Choose {
            "*"
        } else {
            ""
        };
        let number = if row.label.is_empty() {
            String::new()
        } else {
            format!("{}: ", row.point)
        };
        lines.push(vec![
            mark.to_owned(),
            row.variant.clone(),
            format!("{number}{}", row.label),
            spread(row.last, digits),
            spread(row.tail, digits),
            estimate(row.last_difference, digits),
            estimate(row.tail_difference, digits),
            bytes((row.bytes_up + row.bytes_down) as u64),
            format!("{:.3}/{:.3}", row.bits.0, row.bits.1),
            format!("{:.1}x", row.ratio),
            format!("{:.1}x", row.ratio_without_first),
            reach(row),
        ]);
        if row.failed > 0 {
            let last = lines.len() - 1;
            lines[last].push(format!("{} failed", row.failed));
        }
    }
    format!("{}\n{}", outcome.heading(), align(&lines))
}

/// `mean ± deviation`.
pub(super) fn spread(value: Option<Spread>, digits: usize) -> String {
    match value {
        None => "-".to_owned(),
        Some(Spread { mean, deviation: None }) => format!("{mean:.digits$}"),
        Some(Spread {
            mean,
            deviation: Some(sd),
        }) => format!("{mean:.digits$} ± {sd:.digits$}"),
    }
}

/// `mean ± half width`, with a sign.
pub(super) fn estimate(value: Option<Estimate>, digits: usize) -> String {
    match value {
        None => "-".to_owned(),
        Some(Estimate { mean, half_width: None }) => format!("{mean:+.digits$}"),
        Some(Estimate {
            mean,
            half_width: Some(half),
        }) => format!("{mean:+.digits$} ± {half:.digits$}"),
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
fn align(lines: &[Vec<String>]) -> String {
    let count = |cell: &String| cell.chars().count();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(at))
            .map(count)
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
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
