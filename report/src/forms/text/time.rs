//! Where the time of a run went, and how fast its links were.

use std::fmt::Write as _;

use crate::report::Report;
use crate::report::round::RoundLine;
use crate::text::grid::Grid;
use crate::text::number::{MISSING, percent, seconds, size, span};

/// Transfers that take less than this on average measure the processor, not the link.
const LEAST_MS: u64 = 10;

/// Writes how the clients spent their time, how the server did, and how fast the links were during transfers.
pub(crate) fn write(out: &mut String, report: &Report) {
    let of = |value: fn(&RoundLine) -> f64| report.rounds.iter().map(value).fold(0.0, |sum, value| sum + value);
    let upload = report.totals.upload_ms;
    let download = report.totals.download_ms;
    let parts = [
        ("download", download as f64 / 1000.0),
        ("train", of(|line| line.train_seconds)),
        ("encode", of(|line| line.encode_seconds)),
        ("upload", upload as f64 / 1000.0),
        ("wait for the others", of(|line| line.wait_seconds)),
    ];
    let all: f64 = parts.iter().map(|part| part.1).sum();
    let updates: u64 = report.rounds.iter().map(|line| line.updates).sum();
    let mut grid = Grid::default();
    grid.column("clients", true, parts.iter().map(|part| part.0.to_owned()).collect());
    grid.column("seconds", false, parts.iter().map(|part| seconds(part.1)).collect());
    let each = parts.iter().map(|part| match updates {
        0 => MISSING.to_owned(),
        updates => format!("{:.3}", part.1 / updates as f64),
    });
    grid.column("s an update", false, each.collect());
    let share = parts.iter().map(|part| {
        if all > 0.0 {
            percent(part.1 / all)
        } else {
            MISSING.to_owned()
        }
    });
    grid.column("share", false, share.collect());
    grid.write(out);
    let asked: u64 = report.rounds.iter().map(|line| line.asked).sum();
    let (wall, aggregate) = (of(|line| line.seconds), of(|line| line.aggregate_seconds));
    let part = if wall > 0.0 { aggregate / wall } else { 0.0 };
    let _ = writeln!(
        out,
        "The rounds took {}; from the last update to the model, {} of that ({}).",
        span(wall),
        span(aggregate),
        percent(part)
    );
    for (frames, ms, direction) in [
        (report.totals.frames_up(), upload, "up"),
        (report.totals.frames_down(), download, "down"),
    ] {
        let transfers = if direction == "up" { updates } else { asked };
        if ms >= LEAST_MS.saturating_mul(transfers.max(1)) {
            let rate = size(frames as f64 * 1000.0 / ms as f64);
            let _ = writeln!(
                out,
                "While frames went {direction}, a client's link carried {rate}/s on average."
            );
        }
    }
}
