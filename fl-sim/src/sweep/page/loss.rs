//! Loss against round: the mean over the seeds, and the range between them.

use std::fmt::Write as _;

use super::section::Section;
use super::svg::{Axis, END, HALF, begin, escape, series};
use crate::score::RoundLine;
use crate::sweep::summary::Group;

/// The ranges of so many lines can be told apart.
const BANDS: usize = 5;

/// Smallest, mean and largest loss of a round over the seeds.
type Range = (f64, f64, f64);

/// The chart of a phase; empty if there is no round.
pub(super) fn chart(section: &Section<'_>) -> String {
    let records = || section.groups.iter().flat_map(|group| &group.records);
    let is_tested = records().any(|record| record.score.rounds.iter().any(|round| round.test_loss.is_some()));
    let loss = |round: &RoundLine| {
        if is_tested {
            round.test_loss
        } else {
            Some(round.train_loss)
        }
    };
    let lines: Vec<Vec<Range>> = section.groups.iter().map(|group| ranges(group, loss)).collect();
    let rounds = lines.iter().map(Vec::len).max().unwrap_or(0);
    if rounds == 0 {
        return String::new();
    }
    let x = Axis::rounds(rounds);
    let y = Axis::linear(lines.iter().flatten().flat_map(|(low, _, high)| [*low, *high]), true);
    let kind = match (is_tested, section.is_choice()) {
        (true, true) => "validation loss",
        (true, false) => "test loss",
        (false, _) => "training loss",
    };
    let mut out = begin(&HALF, &x, &y, ["round", kind], &format!("{kind} against round"));
    for ((line, color), row) in lines.iter().zip(section.colors()).zip(&section.outcome.rows) {
        let color = series(color);
        let points = |of: fn(&Range) -> f64| {
            let place = move |(at, range): (usize, &Range)| (at as f64 + 1.0, of(range));
            line.iter()
                .enumerate()
                .map(place)
                .filter(|(_, loss)| loss.is_finite())
                .collect::<Vec<_>>()
        };
        let draw = |points: Vec<(f64, f64)>| -> Vec<String> {
            let place = |(round, loss): (f64, f64)| format!("{:.1} {:.1}", HALF.x(x.at(round)), HALF.y(y.at(loss)));
            points.into_iter().map(place).collect()
        };
        let mut high = points(|range| range.2);
        high.reverse();
        let band = [draw(points(|range| range.0)), draw(high)].concat();
        if lines.len() <= BANDS && line.iter().any(|(low, _, high)| high > low) {
            let _ = writeln!(out, "<path class=\"band {color}\" d=\"M{}Z\"/>", band.join("L"));
        }
        let mean = draw(points(|range| range.1));
        if !mean.is_empty() {
            let _ = writeln!(
                out,
                "<path class=\"line {color}\" d=\"M{}\"><title>{}</title></path>",
                mean.join("L"),
                escape(&section.name(row))
            );
        }
    }
    out.push_str(END);
    out
}

fn ranges(group: &Group, loss: impl Fn(&RoundLine) -> Option<f64>) -> Vec<Range> {
    let range = |at: usize| {
        let all = group
            .records
            .iter()
            .filter_map(|record| loss(record.score.rounds.get(at)?));
        let all: Vec<f64> = all.filter(|loss| loss.is_finite()).collect();
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (low, all.iter().sum::<f64>() / all.len() as f64, high)
    };
    (0..group.rounds()).map(range).collect()
}
