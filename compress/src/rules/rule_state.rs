//! The state of a rule for one tensor: a moving average of one statistic, and its value at the end of the warm-up.

use serde::{Deserialize, Serialize};

use crate::rules::agent::Trials;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct RuleState {
    /// The rule and form that own the state, as numbered in the table of rules; 0: none.
    pub(crate) kind: u32,
    /// Observed rounds, without those in which the tensor was all zeros.
    pub(crate) rounds: u32,
    /// Exponential moving average of the statistic; during the warm-up its arithmetic mean.
    pub(crate) mean: f64,
    /// `mean` at the end of the warm-up.
    pub(crate) anchor: f64,
    /// Of a rule that chooses a rank by entropy.
    pub(crate) rank: Option<RankCourse>,
    /// Of a rule that learns from the outcomes of its frames.
    pub(crate) trials: Option<Trials>,
}

/// What a rule that chooses a rank by entropy keeps beside the mean and the anchor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RankCourse {
    pub(crate) frames: u32,
    /// Deviation of the first observation.
    pub(crate) reference: f64,
    /// Of the observations in the window.
    pub(crate) sum: f64,
    pub(crate) count: u32,
    /// 0 during the warm-up.
    pub(crate) rank: u32,
    pub(crate) energy: f64,
    pub(crate) squares: Vec<f64>,
}

impl RuleState {
    /// Resets the state if another rule owns it.
    pub(crate) fn claim(&mut self, kind: u32) {
        if self.kind != kind {
            *self = Self {
                kind,
                ..Self::default()
            };
        }
    }

    /// The average before this round; `now` in the first round.
    pub(crate) fn mean_or(&self, now: f64) -> f64 {
        if self.rounds == 0 { now } else { self.mean }
    }

    /// `mean <- beta * mean + (1 - beta) * now`; during the first `warm_up` rounds the arithmetic mean, which the
    /// anchor follows. This form of the sum leaves a mean that equals `now` bit-identical.
    pub(crate) fn observe(&mut self, now: f64, beta: f64, warm_up: u32) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds <= warm_up {
            self.mean += (now - self.mean) / f64::from(self.rounds);
            self.anchor = self.mean;
        } else {
            self.mean += (1.0 - beta) * (now - self.mean);
        }
    }

    /// `mean <- beta * before + (1 - beta) * now`, without a warm-up.
    pub(crate) fn follow(&mut self, now: f64, before: f64, beta: f64) {
        self.rounds = self.rounds.saturating_add(1);
        self.mean = before + (1.0 - beta) * (now - before);
    }

    pub(crate) fn is_finite(&self) -> bool {
        self.mean.is_finite() && self.anchor.is_finite() && self.rank.as_ref().is_none_or(RankCourse::is_finite)
    }
}

impl RankCourse {
    pub(crate) fn is_finite(&self) -> bool {
        let mut numbers = [self.reference, self.sum, self.energy]
            .into_iter()
            .chain(self.squares.iter().copied());
        numbers.all(f64::is_finite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_is_a_plain_mean_and_then_it_fades() {
        let mut rule_state = RuleState::default();
        for (now, mean, anchor) in [(3.0, 3.0, 3.0), (5.0, 4.0, 4.0), (8.0, 6.0, 4.0), (6.0, 6.0, 4.0)] {
            rule_state.observe(now, 0.5, 2);
            assert_eq!((rule_state.mean, rule_state.anchor), (mean, anchor));
        }
        let mut still = RuleState::default();
        (0..50).for_each(|_| still.observe(0.1, 0.9, 3));
        assert_eq!((still.mean, still.anchor), (0.1, 0.1));
    }
}
