//! Results of clients that evaluated a model version on their own held-out examples.

use crate::config::limits::{evaluation_weights, mean_loss};
use crate::storage::record::ClientEvaluation;

/// The sum of all evaluations of one version. Each example counts once, up to a bound for each client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvaluationSum {
    /// Clients whose reports count.
    pub clients: usize,
    /// Examples that count.
    pub examples: u64,
    /// Mean loss over the examples.
    pub loss: f64,
    /// Examples that count of clients whose model classifies: they have their own bound for each client.
    pub classified: u64,
    /// Examples classified correctly.
    pub correct: f64,
    /// Whether the model of some client is a language model.
    pub language: bool,
}

impl EvaluationSum {
    /// Share of the examples classified correctly, 0 to 1, over the clients whose model classifies; `None` without any.
    pub fn accuracy(&self) -> Option<f64> {
        (self.classified > 0).then(|| self.correct / self.classified as f64)
    }

    /// The exponential of the mean loss, if the model of some client is a language model. `None` beyond the range of a float.
    pub fn perplexity(&self) -> Option<f64> {
        self.language
            .then(|| fl_compress::math::exp(self.loss))
            .filter(|value| value.is_finite())
    }

    /// The sum of the reports of one version; `reports` in the order of the clients' names.
    pub(crate) fn of<'a>(reports: impl Iterator<Item = &'a ClientEvaluation> + Clone) -> Self {
        let claimed: Vec<u64> = reports.clone().map(|report| report.examples).collect();
        let loss = mean_loss(reports.clone().map(|report| (report.examples, report.loss)));
        let counted = evaluation_weights(&claimed);
        let examples = counted.iter().fold(0u64, |n, more| n.saturating_add(*more));
        let language = reports.clone().any(|report| report.language);
        // The bound of each client is relative to these clients: among many that do not classify, one that does would otherwise
        // decide.
        let right: Vec<_> = reports
            .filter_map(|report| Some((report.examples, report.correct?)))
            .collect();
        let classified = evaluation_weights(&right.iter().map(|(examples, _)| *examples).collect::<Vec<_>>());
        let correct = right.iter().zip(&classified);
        let correct =
            correct.map(|((examples, correct), counted)| correct * (*counted as f64 / (*examples).max(1) as f64));
        Self {
            clients: claimed.len(),
            examples,
            loss: loss.unwrap_or(0.0),
            correct: correct.sum(),
            classified: classified.iter().fold(0u64, |n, more| n.saturating_add(*more)),
            language,
        }
    }
}
