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
    /// Examples classified correctly; `None` if the model does not classify.
    pub correct: Option<u64>,
    pub at: Millis,
}

impl Evaluated {
    /// Whether an evaluation can have these results. Others come from a malicious or broken client and do not count.
    pub(super) fn is_sane(examples: u64, loss: f64, correct: Option<u64>) -> bool {
        examples > 0 && correct.is_none_or(|correct| correct <= examples) && (0.0..=MAX_LOSS).contains(&loss)
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
    /// Examples that count of clients whose model classifies: they have their own bound for each client.
    pub classified: u64,
    /// Examples classified correctly.
    pub correct: u64,
    /// Whether the model of some client does not classify.
    pub unclassified: bool,
}

impl Summed {
    /// Share of the examples classified correctly, 0 to 1, over the clients whose model classifies; `None` without any.
    pub fn accuracy(&self) -> Option<f64> {
        (self.classified > 0).then(|| self.correct as f64 / self.classified as f64)
    }

    /// The exponential of the mean loss, if the model of some client does not classify. `None` beyond the range of a float.
    pub fn perplexity(&self) -> Option<f64> {
        self.unclassified
            .then(|| fl_compress::math::exp(self.loss))
            .filter(|value| value.is_finite())
    }
}

impl Summed {
    /// The sum of the reports of one version; `reports` in the order of the clients' names.
    pub(crate) fn of<'a>(reports: impl Iterator<Item = &'a Evaluated> + Clone) -> Self {
        let reports = reports.filter(|report| report.examples > 0);
        let claimed: Vec<u64> = reports.clone().map(|report| report.examples).collect();
        let counted = evaluation_weights(&claimed);
        let examples = counted.iter().fold(0u64, |n, more| n.saturating_add(*more));
        let loss: f64 = reports
            .clone()
            .zip(&counted)
            .map(|(report, &n)| report.loss * n as f64)
            .sum();
        let right = reports.filter_map(|report| Some((report.examples, report.correct?)));
        let (classified, correct) = classified(right);
        Self {
            clients: claimed.len(),
            examples,
            loss: loss / examples.max(1) as f64,
            classified: classified.examples,
            correct,
            unclassified: classified.clients < claimed.len(),
        }
    }
}

/// Clients whose model classifies, and their examples that count.
struct Classified {
    clients: usize,
    examples: u64,
}

/// The examples that count and the right answers of `reports`, each of them a number of examples and of right answers. The
/// bound of each client is relative to these clients: among many that do not classify, one that does would otherwise decide.
fn classified(reports: impl Iterator<Item = (u64, u64)> + Clone) -> (Classified, u64) {
    let claimed: Vec<u64> = reports.clone().map(|(examples, _)| examples).collect();
    let counted = evaluation_weights(&claimed);
    let right = reports.zip(&counted).map(|((examples, correct), &counted)| {
        let part = u128::from(correct) * u128::from(counted) / u128::from(examples.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    });
    let correct = right.fold(0, u64::saturating_add);
    let examples = counted.iter().fold(0u64, |n, more| n.saturating_add(*more));
    let clients = claimed.len();
    (Classified { clients, examples }, correct)
}
