//! Bytes that two runs needed to reach an accuracy, or a perplexity.

use crate::report::Report;
use crate::report::round::RoundLine;
use crate::table::line::line;

line! {
    /// Bytes that two runs had moved when they first reached an accuracy, or a perplexity.
    pub struct ReachLine {
        /// The accuracy; missing in the lines of a perplexity.
        accuracy: Option<f64> [""],
        /// The perplexity, of runs whose models do not classify; a lower one is better.
        perplexity: Option<f64> [""],
        /// Round in which this run reached it.
        own_round: Option<f64> ["round"],
        /// All bytes on this run's sockets until then.
        own_bytes: Option<f64> ["B"],
        /// Round in which the other run reached it.
        other_round: Option<f64> ["round"],
        /// All bytes on the other run's sockets until then.
        other_bytes: Option<f64> ["B"],
        /// The other run's bytes over this run's.
        ratio: Option<f64> [""],
    }
}

/// The accuracies of the table, beside the best of each run.
const ACCURACIES: [f64; 17] = [
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99,
];
/// The perplexities of the table, beside the best of each run.
const PERPLEXITIES: [f64; 20] = [
    1.1, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 100.0, 200.0, 500.0, 1000.0,
];

/// What a run is measured by.
struct Quality {
    /// The value of a round, negated where a lower one is better.
    of: fn(&RoundLine) -> Option<f64>,
    levels: &'static [f64],
    /// 1, or -1 where a lower value is better.
    sign: f64,
    /// Where a line has the level.
    level: fn(&mut ReachLine) -> &mut Option<f64>,
}

const ACCURACY: Quality = Quality {
    of: |line| line.accuracy,
    levels: &ACCURACIES,
    sign: 1.0,
    level: |line| &mut line.accuracy,
};
const PERPLEXITY: Quality = Quality {
    of: |line| line.perplexity.map(|value| -value),
    levels: &PERPLEXITIES,
    sign: -1.0,
    level: |line| &mut line.perplexity,
};

/// The accuracies and perplexities that at least one run reached, from the worse of the two first ones on.
pub(super) fn reach(own: &Report, other: &Report) -> Vec<ReachLine> {
    [levels(own, other, &ACCURACY), levels(own, other, &PERPLEXITY)].concat()
}

/// The lines of the levels reached, from the worst to the best.
fn levels(own: &Report, other: &Report, quality: &Quality) -> Vec<ReachLine> {
    let reports = [own, other].into_iter();
    let first = reports
        .clone()
        .filter_map(|report| report.rounds.iter().find_map(quality.of));
    let Some(begun) = first.reduce(f64::min) else {
        return Vec::new();
    };
    let best = reports.filter_map(|report| report.rounds.iter().filter_map(quality.of).reduce(f64::max));
    let mut levels: Vec<f64> = quality
        .levels
        .iter()
        .map(|level| quality.sign * level)
        .chain(best)
        .collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels.retain(|level| *level >= begun);
    let mut lines = Vec::new();
    for level in levels {
        let mine = reached(own, quality, level);
        let theirs = reached(other, quality, level);
        let ratio = mine.zip(theirs).filter(|(mine, _)| mine.1 > 0.0);
        let mut line = ReachLine {
            own_round: mine.map(|at| at.0),
            own_bytes: mine.map(|at| at.1),
            other_round: theirs.map(|at| at.0),
            other_bytes: theirs.map(|at| at.1),
            ratio: ratio.map(|(mine, theirs)| theirs.1 / mine.1),
            ..ReachLine::default()
        };
        if mine.or(theirs).is_some() {
            *(quality.level)(&mut line) = Some(quality.sign * level);
            lines.push(line);
        }
    }
    lines
}

/// The first round that reached a level, and all bytes until its end.
fn reached(report: &Report, quality: &Quality, level: f64) -> Option<(f64, f64)> {
    let first = report.rounds.first()?.round;
    // Bytes before the first round count too.
    let before = report.participations.iter().filter(|line| line.round < first);
    let mut bytes = before.fold(0.0, |sum, line| sum + line.flow.socket() as f64);
    for line in &report.rounds {
        bytes += line.flow.socket() as f64;
        if (quality.of)(line).is_some_and(|own| own >= level) {
            return Some((line.round as f64, bytes));
        }
    }
    None
}
