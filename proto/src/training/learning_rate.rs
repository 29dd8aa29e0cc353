//! The learning rate from round to round, and from step to step.

use fl_compress::math;

use super::schedule::{Decay, Schedule, Span};
use super::settings::Training;

/// One local step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepAt {
    /// Its round, from 1.
    pub round: u64,
    /// Rounds of the run.
    pub rounds: u64,
    /// Steps of the round before it.
    pub step: u64,
    /// Steps of the round.
    pub steps: u64,
}

impl Training {
    /// Learning rate in `round` (1-based) of a run of `rounds`, without warm-up and decay.
    pub fn learning_rate_in(&self, round: u64, rounds: u64) -> f32 {
        let done = round.saturating_sub(1);
        match self.schedule {
            Schedule::Constant => self.learning_rate,
            Schedule::Cosine => {
                let part = done.min(rounds) as f64 / rounds.max(1) as f64;
                (f64::from(self.learning_rate) * 0.5 * (1.0 + math::cos(std::f64::consts::PI * part))) as f32
            }
            Schedule::Step { every, factor } => {
                let decays = done / u64::from(every.max(1));
                (f64::from(self.learning_rate) * math::pow(factor.into(), decays as f64)) as f32
            }
        }
    }

    /// Learning rate of one step: that of its round, times warm-up or decay.
    ///
    /// With `i` steps before it of `n` in the span, warm-up `w` and floor `f`: `(i + 1) / w` while `i < w`. Then, with
    /// `t = (i - w) / (n - w)`, linear decay is `1 - (1 - f) t` and cosine decay `f + (1 - f) (1 + cos(pi t)) / 2`.
    pub fn learning_rate_at(&self, at: StepAt) -> f32 {
        let rate = self.learning_rate_in(at.round, at.rounds);
        let (before, of) = match self.span {
            Span::Round => (at.step, at.steps),
            Span::Run => (
                at.round
                    .saturating_sub(1)
                    .saturating_mul(at.steps)
                    .saturating_add(at.step),
                at.rounds.saturating_mul(at.steps),
            ),
        };
        let warmup = u64::from(self.warmup);
        if before < warmup {
            return (f64::from(rate) * (before + 1) as f64 / warmup as f64) as f32;
        }
        let part = (before - warmup) as f64 / of.saturating_sub(warmup).max(1) as f64;
        let part = part.min(1.0);
        let floor = f64::from(self.floor);
        match self.decay {
            Decay::Constant => rate,
            Decay::Linear => (f64::from(rate) * (1.0 - (1.0 - floor) * part)) as f32,
            Decay::Cosine => {
                let cosine = 0.5 * (1.0 + math::cos(std::f64::consts::PI * part));
                (f64::from(rate) * (floor + (1.0 - floor) * cosine)) as f32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_lower_the_rate_from_round_to_round() {
        let rate = |schedule, round| {
            Training {
                schedule,
                ..Training::default()
            }
            .learning_rate_in(round, 10)
                / 0.05
        };
        assert_eq!(rate(Schedule::Constant, 10), 1.0);
        assert!((rate(Schedule::Cosine, 1) - 1.0).abs() < 1e-6);
        assert!((rate(Schedule::Cosine, 6) - 0.5).abs() < 1e-6);
        let step = Schedule::Step { every: 3, factor: 0.5 };
        assert_eq!([1, 3, 4, 7].map(|round| rate(step, round)), [1.0, 1.0, 0.5, 0.25]);
    }

    fn rates(training: Training, round: u64, steps: u64) -> Vec<f32> {
        let at = |step| StepAt {
            round,
            rounds: 3,
            step,
            steps,
        };
        (0..steps).map(|step| training.learning_rate_at(at(step))).collect()
    }

    fn training(warmup: u32, decay: Decay, floor: f32, span: Span) -> Training {
        Training {
            learning_rate: 1.0,
            warmup,
            decay,
            floor,
            span,
            ..Training::default()
        }
    }

    #[test]
    fn without_warm_up_and_decay_every_step_has_the_rate_of_its_round() {
        let training = Training {
            schedule: Schedule::Cosine,
            ..Training::default()
        };
        for round in 1..=3 {
            assert_eq!(rates(training, round, 4), [training.learning_rate_in(round, 3); 4]);
        }
    }

    #[test]
    fn the_rate_rises_to_its_full_value_and_falls_to_the_floor() {
        let linear = training(4, Decay::Linear, 0.2, Span::Round);
        assert_eq!(
            rates(linear, 2, 8),
            [0.25, 0.5, 0.75, 1.0, 1.0, 0.8, 0.6, 0.4].map(|rate: f32| rate)
        );
        let cosine = rates(training(0, Decay::Cosine, 0.1, Span::Round), 1, 100);
        assert_eq!(cosine[0], 1.0);
        assert!((cosine[50] - 0.55).abs() < 1e-6 && cosine[99] < 0.101 && cosine[99] >= 0.1);
        assert!(cosine.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn over_the_run_the_rounds_continue_one_another() {
        let run = training(5, Decay::Linear, 0.0, Span::Run);
        let whole: Vec<f32> = (1..=3).flat_map(|round| rates(run, round, 10)).collect();
        let one = training(5, Decay::Linear, 0.0, Span::Round);
        assert_eq!(whole, rates(one, 1, 30));
        // A round beyond the last, as after a rollback, stays at the floor.
        assert_eq!(rates(run, 9, 2), [0.0, 0.0]);
    }
}
