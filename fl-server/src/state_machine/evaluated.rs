//! Results of clients that evaluated a model version on their own held-out examples.

use crate::clock::Millis;
use crate::config::limits::{MAX_LOSS, evaluation_weights};

/// One client's evaluation of one version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluated {
    /// Examples; 0 if the report was impossible.
    pub examples: u64,
    /// Mean loss over them.
    pub loss: f64,
    /// Examples classified correctly.
    pub correct: u64,
    pub at: Millis,
}

impl Evaluated {
    /// Whether an evaluation can have these results. Others come from a malicious or broken client and do not count.
    pub(super) fn is_sane(examples: u64, loss: f64, correct: u64) -> bool {
        examples > 0 && correct <= examples && (0.0..=MAX_LOSS).contains(&loss)
    }
}

/// The sum of all evaluations of one version. Each example counts once, up to a bound for each client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summed {
    /// Clients whose reports count.
    pub clients: usize,
    /// Examples that count.
    pub examples: u64,
    /// Mean loss over the examples.
    pub loss: f64,
    /// Examples classified correctly.
    pub correct: u64,
}

impl Summed {
    /// Share of the examples classified correctly, 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.examples.max(1) as f64
    }
}

impl Summed {
    /// The sum of the reports of one version; `reports` in the order of the clients' names.
    pub(crate) fn of<'a>(reports: impl Iterator<Item = &'a Evaluated> + Clone) -> Self {
        let reports = reports.filter(|report| report.examples > 0);
        let claimed: Vec<u64> = reports.clone().map(|report| report.examples).collect();
        let counted = evaluation_weights(&claimed);
        let examples = counted.iter().fold(0u64, |n, more| n.saturating_add(*more));
        let (mut loss, mut correct) = (0.0, 0u64);
        for (report, &counted) in reports.zip(&counted) {
            loss += report.loss * counted as f64;
            let part = u128::from(report.correct) * u128::from(counted) / u128::from(report.examples.max(1));
            correct = correct.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        }
        Self {
            clients: claimed.len(),
            examples,
            loss: loss / examples.max(1) as f64,
            correct,
        }
    }
}
