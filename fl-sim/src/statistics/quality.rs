//! How good a model is: accuracy, perplexity or the error of numbers.

use serde::Serialize;

use crate::score::{RoundLine, Score};

/// Rounds over which the last models are averaged.
const TAIL: usize = 3;

/// What the learners of a sweep report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Quality {
    /// Percent of right answers.
    Accuracy,
    /// The exponential of the loss.
    Perplexity,
    /// Root mean squared error.
    Rmse,
}

impl Quality {
    /// The quality that these runs have: accuracy if there is any, then perplexity, then the error.
    pub(crate) fn of<'a>(scores: &(impl Iterator<Item = &'a Score> + Clone)) -> Option<Self> {
        let all = [Self::Accuracy, Self::Perplexity, Self::Rmse];
        all.into_iter()
            .find(|quality| scores.clone().any(|score| quality.last(score).is_some()))
    }

    pub(crate) fn at(self, round: &RoundLine) -> Option<f64> {
        match self {
            Self::Accuracy => round.accuracy.map(|share| 100.0 * share),
            Self::Perplexity => round.perplexity,
            Self::Rmse => round.rmse(),
        }
    }

    pub(crate) fn last(self, score: &Score) -> Option<f64> {
        self.at(score.rounds.last()?)
    }

    /// Mean of the last three rounds' models, or of all if there are fewer.
    pub(crate) fn tail(self, score: &Score) -> Option<f64> {
        let from = score.rounds.len().saturating_sub(TAIL);
        let last: Option<Vec<f64>> = score.rounds[from..].iter().map(|round| self.at(round)).collect();
        let last = last.filter(|last| !last.is_empty())?;
        Some(last.iter().sum::<f64>() / last.len() as f64)
    }

    /// That of the mean of the last versions, where the run averages them.
    pub(crate) fn averaged(self, score: &Score) -> Option<f64> {
        let last = score.rounds.last()?;
        match self {
            Self::Accuracy => last.average("accuracy").map(|share| 100.0 * share),
            Self::Perplexity => last.average("loss").map(f64::exp),
            Self::Rmse => last.average("rmse"),
        }
    }

    /// Grows with the model's quality.
    pub(crate) fn goodness(self, value: f64) -> f64 {
        match self {
            Self::Accuracy => value,
            Self::Perplexity | Self::Rmse => -value,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy, %",
            Self::Perplexity => "perplexity",
            Self::Rmse => "rmse",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Accuracy => "points",
            Self::Perplexity => "of perplexity",
            Self::Rmse => "of rmse",
        }
    }

    pub(crate) fn digits(self) -> usize {
        match self {
            Self::Accuracy | Self::Perplexity => 2,
            Self::Rmse => 4,
        }
    }
}
