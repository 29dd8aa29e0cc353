//! A report of a language model.

use fl_report::{Measures, Report};

use crate::fixtures::made;

/// The report of a language model: no client classifies, and all of them report metrics.
pub(crate) fn measured(rounds: u64, clients: &[String], seed: u64) -> Report {
    let mut report = made(rounds, clients, seed);
    let measures =
        |pairs: &[(&str, f64)]| Measures(pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect());
    for line in &mut report.rounds {
        line.accuracy = None;
        line.perplexity = line.evaluation_loss.map(f64::exp);
        line.trained = measures(&[("grad/norm", 3.5 / line.round as f64), ("tokens_per_s", 52_340.0)]);
        if line.evaluated > 0 {
            line.measured = measures(&[("bleu", 0.25 - 0.125 / line.round as f64)]);
        }
    }
    for line in report.participations.iter_mut().filter(|line| line.updated) {
        line.trained = measures(&[("grad/norm", 3.5 / line.round as f64)]);
    }
    report
}
