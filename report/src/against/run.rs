//! A run compared with another run.

use std::collections::BTreeSet;

use crate::against::comparison::{Comparison, TotalLine, ratio, totals};
use crate::against::reach::reach;
use crate::report::Report;
use crate::report::round::RoundLine;
use crate::table::Table;
use crate::table::line::line;
use crate::text::number::{count, name};

line! {
    /// One round of two runs. A value that a run does not have is missing.
    pub struct RunRound {
        /// The round.
        round: u64 [""],
        /// All bytes on this run's sockets.
        own_bytes: Option<f64> ["B"],
        /// All bytes on the other run's sockets.
        other_bytes: Option<f64> ["B"],
        /// The other run's bytes over this run's.
        ratio: Option<f64> [""],
        /// Accuracy of this run's model.
        own_accuracy: Option<f64> [""],
        /// Accuracy of the other run's model.
        other_accuracy: Option<f64> [""],
        /// Perplexity of this run's model.
        own_perplexity: Option<f64> [""],
        /// Perplexity of the other run's model.
        other_perplexity: Option<f64> [""],
        /// Bits of frame per parameter of this run's updates, mean.
        own_bits_up: Option<f64> ["bit"],
        /// Bits of frame per parameter of the other run's updates, mean.
        other_bits_up: Option<f64> ["bit"],
        /// Bits of frame per parameter of this run's model update.
        own_bits_down: Option<f64> ["bit"],
        /// Bits of frame per parameter of the other run's model update.
        other_bits_down: Option<f64> ["bit"],
    }
}

pub(super) fn compare(own: &Report, other: &Report) -> Comparison {
    let numbers: BTreeSet<u64> = own.rounds.iter().chain(&other.rounds).map(|line| line.round).collect();
    let rounds: Vec<RunRound> = numbers.into_iter().map(|round| beside(own, other, round)).collect();
    let mine = totals(own);
    let theirs = TotalLine {
        times: ratio(other.totals.socket(), own.totals.socket()),
        ..totals(other)
    };
    Comparison {
        against: other.run.name.clone(),
        notes: notes(own, other),
        totals: Table::of([mine, theirs].iter()),
        rounds: Table::of(rounds.iter()),
        reach: Table::of(reach(own, other).iter()),
    }
}

fn beside(own: &Report, other: &Report, round: u64) -> RunRound {
    let mine = at(own, round);
    let theirs = at(other, round);
    let own_bytes = mine.map(|line| line.flow.socket());
    let other_bytes = theirs.map(|line| line.flow.socket());
    RunRound {
        round,
        own_bytes: own_bytes.map(|bytes| bytes as f64),
        other_bytes: other_bytes.map(|bytes| bytes as f64),
        ratio: own_bytes
            .zip(other_bytes)
            .and_then(|(mine, theirs)| ratio(theirs, mine)),
        own_accuracy: mine.and_then(|line| line.accuracy),
        other_accuracy: theirs.and_then(|line| line.accuracy),
        own_perplexity: mine.and_then(|line| line.perplexity),
        other_perplexity: theirs.and_then(|line| line.perplexity),
        own_bits_up: mine.and_then(|line| line.bits_up),
        other_bits_up: theirs.and_then(|line| line.bits_up),
        own_bits_down: mine.and_then(|line| line.bits_down),
        other_bits_down: theirs.and_then(|line| line.bits_down),
    }
}

/// The line of a round, by binary search: lines are in the order of rounds.
fn at(report: &Report, round: u64) -> Option<&RoundLine> {
    let place = report.rounds.binary_search_by_key(&round, |line| line.round).ok()?;
    report.rounds.get(place)
}

/// How the runs differ, so that a reader does not compare what cannot be compared.
fn notes(own: &Report, other: &Report) -> Vec<String> {
    let mut notes = vec!["Both sides count all bytes on their sockets.".to_owned()];
    if own.run.task != other.run.task {
        notes.push(format!(
            "The tasks differ: {} here, {} there; their accuracies and losses are not comparable.",
            name(&own.run.task),
            name(&other.run.task)
        ));
    }
    if own.run.parameters != other.run.parameters {
        notes.push(format!(
            "The models differ: {} parameters here, {} there.",
            count(own.run.parameters),
            count(other.run.parameters)
        ));
    }
    let mine = own.closed().count();
    let theirs = other.closed().count();
    if mine != theirs {
        notes.push(format!(
            "This run has {mine} closed rounds, the other {theirs}: the totals cover different numbers of rounds."
        ));
    }
    notes
}
