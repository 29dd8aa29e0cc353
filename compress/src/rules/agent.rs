//! The agent behind `by = "bandit"` (after AutoScale, as Sato's survey names it: an on-line agent; the agent here is
//! ours).
//!
//! A discounted epsilon-greedy bandit has a few arms, each a setting of one number. The reward of a frame is the energy
//! that it kept, less `worth` times its coded bits per value: `worth` is the share of the energy that one bit per value
//! must keep. Every arm is tried once; then the arm with the best discounted mean is taken, and with the chance
//! `explore` any arm. Draws depend on `seed`, the stream and the number of frames alone.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::forms::rule::Table;
use crate::rng::KeyedRng;

pub(crate) const NAME: &str = "bandit";
// The usual chance of an epsilon-greedy bandit (Sutton and Barto 2018, section 2.3).
const EXPLORE: f64 = 0.1;
// Weight of a reward after one more frame: the last 20 frames make two thirds of a mean, so an agent follows a
// training.
const DISCOUNT: f64 = 0.95;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Agent {
    worth: f64,
    explore: f64,
    seed: u32,
}

/// What a frame, or a section of it, achieved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Share of the energy.
    pub(crate) kept: f64,
    /// Coded bits per value.
    pub(crate) bits: f64,
}

/// What an agent remembers of its arms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trials {
    seed: u32,
    frames: u32,
    last: usize,
    /// Empty before the first frame.
    arms: Vec<Arm>,
    /// The outcome of the last frame, until the agent reads it.
    outcome: Option<Outcome>,
}

/// Discounted number of frames with an arm, and sum of their rewards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Arm {
    frames: f64,
    rewards: f64,
}

impl Agent {
    /// Removes the parameters from `table`. `worth` is the default of that.
    pub(crate) fn read(table: &mut Table, worth: f64) -> Result<Self, Error> {
        Ok(Self {
            worth: table.number("worth", worth, 0.0..=1000.0)?,
            explore: table.number("explore", EXPLORE, 0.0..=1.0)?,
            seed: table.seed()?,
        })
    }

    /// The table with the parameters that differ from their defaults.
    pub(crate) fn in_table(&self, table: Table, worth: f64) -> Table {
        table
            .with("worth", self.worth, worth)
            .with("explore", self.explore, EXPLORE)
            .with("seed", self.seed.into(), 0.0)
    }

    /// Reads the outcome of the last frame, and returns the arm of this one, of `count`.
    pub(crate) fn choose(&self, trials: &mut Trials, count: usize, stream: usize) -> usize {
        if trials.arms.len() != count {
            *trials = Trials {
                seed: self.seed,
                arms: vec![Arm::default(); count],
                ..Trials::default()
            };
        }
        if let Some(Outcome { kept, bits }) = trials.outcome.take() {
            for arm in &mut trials.arms {
                arm.frames *= DISCOUNT;
                arm.rewards *= DISCOUNT;
            }
            let last = &mut trials.arms[trials.last];
            last.frames += 1.0;
            last.rewards += kept - self.worth * bits;
        }
        trials.last = self.arm(trials, stream);
        trials.frames = trials.frames.saturating_add(1);
        trials.last
    }

    fn arm(&self, trials: &Trials, stream: usize) -> usize {
        let arms = &trials.arms;
        if let Some(untried) = arms.iter().position(|arm| arm.frames == 0.0) {
            return untried;
        }
        let rng = KeyedRng::new(self.seed.into(), stream);
        let frame = trials.frames as usize;
        if f64::from(rng.unit(2 * frame)) < self.explore {
            return ((f64::from(rng.unit(2 * frame + 1)) * arms.len() as f64) as usize).min(arms.len() - 1);
        }
        let mean = |at: usize| arms[at].rewards / arms[at].frames;
        (0..arms.len()).fold(0, |best, at| if mean(at) > mean(best) { at } else { best })
    }

    /// Succeeds if `trials` are of this agent and have `count` arms, or none.
    ///
    /// # Errors
    /// `Mismatch` for another seed or number of arms; `NotFinite`.
    pub(crate) fn accepts(&self, trials: &Trials, count: usize, of: &str) -> Result<(), Error> {
        if trials.arms.is_empty() {
            return Ok(());
        }
        if trials.arms.len() != count || trials.last >= count {
            return Err(Error::Mismatch(format!(
                "the state's bandit for `{of}` has another number of arms than {count}; start with a new state"
            )));
        }
        if trials.seed != self.seed {
            return Err(Error::Mismatch(format!(
                "the state's bandit for `{of}` began with seed {}, the spec requires {}; start with a new state",
                trials.seed, self.seed
            )));
        }
        let sums = trials.arms.iter().map(|arm| arm.frames + arm.rewards).sum::<f64>();
        let outcome = trials.outcome.map_or(0.0, |outcome| outcome.kept + outcome.bits);
        if (sums + outcome).is_finite() {
            return Ok(());
        }
        Err(Error::NotFinite(format!("the state's bandit for `{of}`")))
    }
}

impl Trials {
    /// The arm of the last frame; the first before there was one.
    pub(crate) fn last(&self) -> usize {
        self.last
    }

    /// Takes the outcome of a frame. An outcome that the agent has not read yet stays: no arm was chosen since, because the
    /// frame had only zeros.
    pub(crate) fn teach(&mut self, outcome: Outcome) {
        if self.frames > 0 && self.outcome.is_none() {
            self.outcome = Some(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARMS: usize = 3;

    fn agent(explore: f64) -> Agent {
        Agent {
            worth: 0.5,
            explore,
            seed: 7,
        }
    }

    /// Arms keep 0.5, 0.8 and 0.9 of the energy for 0.1, 0.5 and 1 bits: rewards 0.45, 0.55 and 0.4.
    const OUTCOMES: [Outcome; ARMS] = [
        Outcome { kept: 0.5, bits: 0.1 },
        Outcome { kept: 0.8, bits: 0.5 },
        Outcome { kept: 0.9, bits: 1.0 },
    ];

    #[test]
    fn arms_are_tried_once_and_then_the_best_is_taken() {
        let mut trials = Trials::default();
        trials.teach(OUTCOMES[0]);
        assert_eq!(trials, Trials::default(), "there was no frame");
        let mut choose = |outcome: Option<Outcome>| {
            let arm = agent(0.0).choose(&mut trials, ARMS, 0);
            trials.teach(outcome.unwrap_or(OUTCOMES[arm]));
            (arm, trials.clone())
        };
        let chosen: Vec<usize> = (0..6).map(|_| choose(None).0).collect();
        assert_eq!(chosen, [0, 1, 2, 1, 1, 1]);
        // Four rewards of 0.55, each with 0.95 of the weight of the next, between which arm 2 had one frame.
        let (arm, trials) = choose(Some(Outcome { kept: 0.0, bits: 0.0 }));
        let count = 0.95f64.powi(4) + 0.95f64.powi(2) + 0.95 + 1.0;
        assert!(
            (trials.arms[1].frames - count).abs() < 1e-12 && (trials.arms[1].rewards - 0.55 * count).abs() < 1e-12,
            "{trials:?}"
        );
        // A better reward elsewhere is found again only by exploring.
        assert_eq!((arm, choose(None).0), (1, 0));
    }

    #[test]
    fn a_frame_without_an_outcome_tries_the_same_arm_again() {
        let mut trials = Trials::default();
        let chosen = [(); 3].map(|()| agent(0.0).choose(&mut trials, ARMS, 0));
        assert_eq!(chosen, [0; 3]);
    }

    #[test]
    fn draws_depend_on_the_seed_and_the_stream() {
        let of = |agent: Agent, stream: usize| -> Vec<usize> {
            let mut trials = Trials::default();
            let frame = |_| {
                trials.teach(Outcome { kept: 0.5, bits: 0.0 });
                agent.choose(&mut trials, ARMS, stream)
            };
            (0..60).map(frame).collect()
        };
        let other = Agent { seed: 8, ..agent(0.5) };
        assert_eq!(of(agent(0.5), 1), of(agent(0.5), 1));
        assert!(of(agent(0.5), 1) != of(agent(0.5), 2) && of(agent(0.5), 1) != of(other, 1));
    }

    #[test]
    fn the_trials_of_another_agent_are_refused() {
        let mut trials = Trials::default();
        assert_eq!(agent(0.5).accepts(&trials, ARMS, "bits"), Ok(()));
        for _ in 0..9 {
            agent(0.5).choose(&mut trials, ARMS, 0);
            trials.teach(OUTCOMES[0]);
        }
        assert_eq!(agent(0.5).accepts(&trials, ARMS, "bits"), Ok(()));
        let refused = |trials: &Trials, count| agent(0.5).accepts(trials, count, "bits").unwrap_err().to_string();
        let other = Trials {
            seed: 8,
            ..trials.clone()
        };
        assert!(refused(&other, ARMS).contains("`bits` began with seed 8, the spec requires 7"));
        assert!(refused(&trials, 4).contains("`bits` has another number of arms than 4"));
        let other = Trials {
            last: ARMS,
            ..trials.clone()
        };
        assert!(refused(&other, ARMS).contains("another number of arms"));
        trials.arms[1].rewards = f64::NAN;
        assert!(refused(&trials, ARMS).contains("bandit for `bits`"));
    }
}
