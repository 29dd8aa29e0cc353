//! The agent behind `by = "bandit"` (after AutoScale, as Sato's survey names it: an on-line agent; the agent here is
//! ours).
//!
//! A discounted epsilon-greedy bandit has a few arms, each a setting of one number. The reward of a frame is the energy
//! that it kept, less `worth` times its coded bits per value: `worth` is the share of the energy that one bit per value
//! must keep. Every arm is tried once; then the arm with the best discounted mean is taken, and with the chance
//! `explore` any arm. Draws depend on `seed`, the stream and the number of frames alone.

use crate::error::Error;
use crate::forms::rule::Table;
use crate::rng::KeyedRng;

/// The rule's name in TOML.
pub(crate) const NAME: &str = "bandit";

const EXPLORE: f64 = 0.1;
/// Weight of a reward after one more frame.
const DISCOUNT: f64 = 0.95;
/// Numbers of [`Arms::write`] before the sums.
const HEAD: usize = 3;

/// The parameters of an agent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Agent {
    worth: f64,
    explore: f64,
    pub(crate) seed: u32,
}

/// What an agent remembers of its `N` arms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arms<const N: usize> {
    frames: f64,
    /// The arm of the last frame.
    last: usize,
    /// Discounted number of frames, and sum of their rewards.
    counts: [f64; N],
    rewards: [f64; N],
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

    /// Counts the outcome of the last frame (energy kept, and coded bits per value), and returns the arm of this one.
    pub(crate) fn choose<const N: usize>(
        &self,
        arms: &mut Arms<N>,
        outcome: Option<(f64, f64)>,
        stream: usize,
    ) -> usize {
        if let Some((kept, bits)) = outcome {
            let sums = arms.counts.iter_mut().chain(&mut arms.rewards);
            sums.for_each(|sum| *sum *= DISCOUNT);
            arms.counts[arms.last] += 1.0;
            arms.rewards[arms.last] += kept - self.worth * bits;
        }
        arms.last = self.arm(arms, stream);
        arms.frames += 1.0;
        arms.last
    }

    fn arm<const N: usize>(&self, arms: &Arms<N>, stream: usize) -> usize {
        let frame = arms.frames as usize;
        if let Some(untried) = arms.counts.iter().position(|count| *count == 0.0) {
            return untried;
        }
        let rng = KeyedRng::new(self.seed.into(), stream);
        if f64::from(rng.unit(2 * frame)) < self.explore {
            return ((f64::from(rng.unit(2 * frame + 1)) * N as f64) as usize).min(N - 1);
        }
        let mean = |at: usize| arms.rewards[at] / arms.counts[at];
        (0..N).fold(0, |best, at| if mean(at) > mean(best) { at } else { best })
    }

    /// Succeeds if `numbers`, of [`Arms::write`], are of this agent: or there are none.
    ///
    /// # Errors
    /// `Mismatch` for another seed or number of arms.
    pub(crate) fn accepts<const N: usize>(&self, numbers: &[f64], of: &str) -> Result<(), Error> {
        match *numbers {
            [] => Ok(()),
            _ if numbers.len() != HEAD + 2 * N => Err(Error::Mismatch(format!(
                "the state's bandit for `{of}` has another number of arms than {N}; start with a new state"
            ))),
            [seed, ..] if seed != f64::from(self.seed) => Err(Error::Mismatch(format!(
                "the state's bandit for `{of}` began with seed {seed}, the spec requires {}; start with a new state",
                self.seed
            ))),
            _ => Ok(()),
        }
    }
}

impl<const N: usize> Default for Arms<N> {
    fn default() -> Self {
        Self {
            frames: 0.0,
            last: 0,
            counts: [0.0; N],
            rewards: [0.0; N],
        }
    }
}

impl<const N: usize> Arms<N> {
    /// The arm of the last frame; the first before there was one.
    pub(crate) fn last(&self) -> usize {
        self.last
    }

    /// Whether no frame was chosen for.
    pub(crate) fn is_new(&self) -> bool {
        self.frames == 0.0
    }

    /// Those of the output of [`Arms::write`]; new ones if the numbers are not of `N` arms, or of another seed.
    pub(crate) fn read(numbers: &[f64], seed: u32) -> Self {
        match *numbers {
            [own, frames, last, ref sums @ ..] if own == f64::from(seed) && sums.len() == 2 * N => Self {
                frames,
                last: (last as usize).min(N - 1),
                counts: std::array::from_fn(|at| sums[at]),
                rewards: std::array::from_fn(|at| sums[N + at]),
            },
            _ => Self::default(),
        }
    }

    /// The seed, the frames, the last arm, and the sums.
    pub(crate) fn write(&self, seed: u32) -> Vec<f64> {
        let numbers = [seed.into(), self.frames, self.last as f64].into_iter();
        numbers.chain(self.counts).chain(self.rewards).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(explore: f64) -> Agent {
        Agent {
            worth: 0.5,
            explore,
            seed: 7,
        }
    }

    /// Arms keep 0.5, 0.8 and 0.9 of the energy for 0.1, 0.5 and 1 bits: rewards 0.45, 0.55 and 0.4.
    const OUTCOMES: [(f64, f64); 3] = [(0.5, 0.1), (0.8, 0.5), (0.9, 1.0)];

    #[test]
    fn arms_are_tried_once_and_then_the_best_is_taken() {
        let (agent, mut arms) = (agent(0.0), Arms::<3>::default());
        assert!(arms.is_new());
        let mut outcome = None;
        let chosen: Vec<usize> = (0..6)
            .map(|_| {
                let arm = agent.choose(&mut arms, outcome.take(), 0);
                outcome = Some(OUTCOMES[arm]);
                arm
            })
            .collect();
        assert_eq!(chosen, [0, 1, 2, 1, 1, 1]);
        // Three rewards of 0.55 after the first, each with 0.95 of the weight of the next; that of arm 1 waits.
        let count = 0.95f64.powi(3) + 0.95 + 1.0;
        assert!(
            (arms.counts[1] - count).abs() < 1e-12 && (arms.rewards[1] - 0.55 * count).abs() < 1e-12,
            "{arms:?}"
        );
        // A better reward elsewhere is found again only by exploring.
        assert_eq!(agent.choose(&mut arms, Some((0.0, 0.0)), 0), 0);
    }

    #[test]
    fn a_frame_without_an_outcome_tries_the_same_arm_again() {
        let (agent, mut arms) = (agent(0.0), Arms::<3>::default());
        let chosen = [(); 3].map(|()| agent.choose(&mut arms, None, 0));
        assert_eq!(chosen, [0; 3]);
    }

    #[test]
    fn draws_depend_on_the_seed_and_the_stream() {
        let of = |agent: Agent, stream: usize| -> Vec<usize> {
            let mut arms = Arms::<3>::default();
            (0..60)
                .map(|_| agent.choose(&mut arms, Some((0.5, 0.0)), stream))
                .collect()
        };
        let other = Agent { seed: 8, ..agent(0.5) };
        assert_eq!(of(agent(0.5), 1), of(agent(0.5), 1));
        assert!(of(agent(0.5), 1) != of(agent(0.5), 2) && of(agent(0.5), 1) != of(other, 1));
    }

    #[test]
    fn numbers_round_trip_and_those_of_another_agent_are_refused() {
        let (agent, mut arms) = (agent(0.5), Arms::<3>::default());
        for _ in 0..9 {
            agent.choose(&mut arms, Some((0.5, 0.1)), 0);
        }
        let numbers = arms.write(7);
        assert_eq!(Arms::read(&numbers, 7), arms);
        assert!(agent.accepts::<3>(&numbers, "bits").is_ok() && agent.accepts::<3>(&[], "bits").is_ok());
        let refused = |numbers: &[f64]| agent.accepts::<3>(numbers, "bits").unwrap_err().to_string();
        assert!(refused(&arms.write(8)).contains("`bits` began with seed 8, the spec requires 7"));
        assert!(refused(&numbers[1..]).contains("`bits` has another number of arms than 3"));
        assert!(Arms::<3>::read(&arms.write(8), 7).is_new() && Arms::<4>::read(&numbers, 7).is_new());
    }
}
