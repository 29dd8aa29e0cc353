//! Bytes that two runs needed to reach an accuracy.

use crate::report::Report;
use crate::table::line::line;

line! {
    /// Bytes that two runs had moved when they first reached an accuracy.
    pub struct ReachLine {
        /// The accuracy.
        accuracy: f64 [""],
        /// Round in which this run reached the accuracy.
        own_round: Option<f64> ["round"],
        /// All bytes on this run's sockets until then.
        own_bytes: Option<f64> ["B"],
        /// Round in which the other run reached the accuracy.
        other_round: Option<f64> ["round"],
        /// All bytes on the other run's sockets until then.
        other_bytes: Option<f64> ["B"],
        /// The other run's bytes over this run's.
        ratio: Option<f64> [""],
    }
}

/// The accuracies of the table, beside the best of each run.
const LEVELS: [f64; 17] = [
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99,
];

/// The accuracies that at least one run reached, from the lower of the two first ones on.
pub(super) fn reach(own: &Report, other: &Report) -> Vec<ReachLine> {
    let best = |report: &Report| report.rounds.iter().filter_map(|line| line.accuracy).reduce(f64::max);
    let first = |report: &Report| report.rounds.iter().find_map(|line| line.accuracy);
    let begun = first(own)
        .into_iter()
        .chain(first(other))
        .reduce(f64::min)
        .unwrap_or(0.0);
    let mut levels: Vec<f64> = LEVELS.into_iter().chain(best(own)).chain(best(other)).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let lines = levels.into_iter().filter(|level| *level >= begun).map(|accuracy| {
        let (mine, theirs) = (reached(own, accuracy), reached(other, accuracy));
        let ratio = mine.zip(theirs).filter(|(mine, _)| mine.1 > 0.0);
        ReachLine {
            accuracy,
            own_round: mine.map(|at| at.0),
            own_bytes: mine.map(|at| at.1),
            other_round: theirs.map(|at| at.0),
            other_bytes: theirs.map(|at| at.1),
            ratio: ratio.map(|(mine, theirs)| theirs.1 / mine.1),
        }
    });
    lines
        .filter(|line| line.own_round.is_some() || line.other_round.is_some())
        .collect()
}

/// The first round that reached an accuracy, and all bytes until its end.
fn reached(report: &Report, accuracy: f64) -> Option<(f64, f64)> {
    let first = report.rounds.first()?.round;
    // Bytes before the first round count too.
    let before = report.participations.iter().filter(|line| line.round < first);
    let mut bytes = before.fold(0.0, |sum, line| sum + line.flow.socket() as f64);
    for line in &report.rounds {
        bytes += line.flow.socket() as f64;
        if line.accuracy.is_some_and(|own| own >= accuracy) {
            return Some((line.round as f64, bytes));
        }
    }
    None
}
