//! Density by trial and reward (after AutoScale, as Sato's survey names it: an on-line agent; the agent here is ours).
//!
//! A discounted epsilon-greedy bandit has five arms, densities from `least` to `most` with equal ratios. The reward of a frame is
//! the energy that it kept, less `worth` times its coded bits per value: `worth` is the share of the energy that one bit per value
//! must keep. Every arm is tried once; then the arm with the best discounted mean is taken, and with the chance `explore` any arm.
//! Draws depend on `seed` and the number of frames alone.

use crate::density::Density;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::rule::Table;
use crate::rng::KeyedRng;
use crate::rules::density_range::DensityRange;
use crate::rules::method::{DensityRule, Entry};
use crate::rules::rule_state::RuleState;
use crate::rules::selection::Selection;

/// The entry in the table.
pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: NAME,
        about: "By trial: the density whose frames kept the most energy for their bits.",
        examples: &["{ by = 'bandit' }"],
        leaves_out: true,
    },
    kinds: &[KIND],
};

const NAME: &str = "bandit";
/// Kind of state, as numbered in the state file.
const KIND: u32 = 7;
const ARMS: usize = 5;
const WORTH: f64 = 1.0;
const EXPLORE: f64 = 0.1;
/// Weight of a reward after one more frame.
const DISCOUNT: f64 = 0.95;

/// The rule `{ by = "bandit", .. }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BanditRule {
    range: DensityRange,
    worth: f64,
    explore: f64,
    seed: u32,
    clip: Option<f64>,
}

/// The numbers of the state, as [`RuleState::more`] has them.
#[derive(Debug, Clone, Copy, Default)]
struct Arms {
    seed: f64,
    frames: f64,
    /// The arm of the last frame.
    last: usize,
    /// Discounted number of frames, and sum of their rewards.
    counts: [f64; ARMS],
    rewards: [f64; ARMS],
}

impl DensityRule for BanditRule {
    fn read(table: &mut Table) -> Result<Self, Error> {
        Ok(Self {
            range: DensityRange::read(table)?,
            worth: table.number("worth", WORTH, 0.0..=1000.0)?,
            explore: table.number("explore", EXPLORE, 0.0..=1.0)?,
            seed: table.seed()?,
            clip: table.clip()?,
        })
    }

    fn table(&self) -> Table {
        self.range
            .in_table(Table::by(NAME))
            .with("worth", self.worth, WORTH)
            .with("explore", self.explore, EXPLORE)
            .with("seed", self.seed.into(), 0.0)
            .with_clip(self.clip)
    }

    fn choose(&self, values: &[f32], _round: u64, rule_state: &mut RuleState) -> Selection {
        if values.iter().all(|value| *value == 0.0) {
            return Selection::Count(0);
        }
        rule_state.claim(KIND);
        let mut arms = Arms::read(&rule_state.more, self.seed);
        if let Some((kept, bits)) = rule_state.outcome.take() {
            arms.counts
                .iter_mut()
                .chain(&mut arms.rewards)
                .for_each(|sum| *sum *= DISCOUNT);
            arms.counts[arms.last] += 1.0;
            arms.rewards[arms.last] += kept - self.worth * bits;
        }
        arms.last = self.arm(&arms);
        arms.frames += 1.0;
        rule_state.more = arms.write();
        rule_state.rounds = rule_state.rounds.saturating_add(1);
        Selection::Count(self.density_of(arms.last).count(values.len()))
    }

    fn counts(&self) -> bool {
        true
    }

    fn wants_outcome(&self) -> bool {
        true
    }

    fn clip(&self) -> Option<f32> {
        self.clip.map(|clip| clip as f32)
    }
}

impl BanditRule {
    fn arm(&self, arms: &Arms) -> usize {
        let frame = arms.frames as usize;
        if let Some(untried) = arms.counts.iter().position(|count| *count == 0.0) {
            return untried;
        }
        let rng = KeyedRng::new(self.seed.into(), 0);
        if f64::from(rng.unit(2 * frame)) < self.explore {
            return ((f64::from(rng.unit(2 * frame + 1)) * ARMS as f64) as usize).min(ARMS - 1);
        }
        let mean = |at: usize| arms.rewards[at] / arms.counts[at];
        (0..ARMS).fold(0, |best, at| if mean(at) > mean(best) { at } else { best })
    }

    fn density_of(&self, arm: usize) -> Density {
        let (least, most) = (f64::from(self.range.least), f64::from(self.range.most));
        let density = least * (most / least).powf(arm as f64 / (ARMS - 1) as f64);
        Density::new(density.min(1.0)).unwrap_or(self.range.density)
    }
}

impl Arms {
    /// Starts afresh if the numbers are of another seed or none.
    fn read(numbers: &[f64], seed: u32) -> Self {
        match *numbers {
            [own, frames, last, ref sums @ ..] if own == f64::from(seed) && sums.len() == 2 * ARMS => Self {
                seed: own,
                frames,
                last: (last as usize).min(ARMS - 1),
                counts: std::array::from_fn(|at| sums[at]),
                rewards: std::array::from_fn(|at| sums[ARMS + at]),
            },
            _ => Self {
                seed: seed.into(),
                ..Self::default()
            },
        }
    }

    fn write(&self) -> Vec<f64> {
        let numbers = [self.seed, self.frames, self.last as f64].into_iter();
        numbers.chain(self.counts).chain(self.rewards).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::{laplace, spec};

    /// Energy kept and bits per value of the `k` largest of `values`, at 12 bits each.
    fn outcome(values: &[f32], k: usize) -> (f64, f64) {
        let mut squares: Vec<f64> = values.iter().map(|value| f64::from(*value).powi(2)).collect();
        squares.sort_by(|a, b| b.total_cmp(a));
        let kept = squares[..k].iter().sum::<f64>() / squares.iter().sum::<f64>();
        (kept, 12.0 * k as f64 / values.len() as f64)
    }

    fn counts(text: &str, frames: usize) -> Vec<usize> {
        let (spec, mut state) = (spec(text), RuleState::default());
        let frame = |at: usize| {
            let values = laplace(4000, at as u64);
            let Selection::Count(k) = spec.choose(&values, at as u64, &mut state).chosen else {
                panic!("a count")
            };
            state.outcome = Some(outcome(&values, k));
            k
        };
        (0..frames).map(frame).collect()
    }

    #[test]
    fn the_mean_reward_is_near_that_of_the_best_arm() {
        for worth in [0.3, 1.0, 3.0] {
            let text = format!("{{ by = 'bandit', worth = {worth}, seed = 5 }}");
            let counts = counts(&text, 120);
            let arms: Vec<usize> = counts[..5].to_vec();
            assert_eq!(arms, [4, 13, 40, 127, 400]);
            let values = laplace(4000, 999);
            let reward = |k: usize| {
                let (kept, bits) = outcome(&values, k);
                kept - worth * bits
            };
            let rewards: Vec<f64> = arms.into_iter().map(reward).collect();
            let best = rewards.iter().fold(f64::MIN, |best, reward| best.max(*reward));
            let worst = rewards.iter().fold(f64::MAX, |worst, reward| worst.min(*reward));
            let mean = counts[20..].iter().map(|&count| reward(count)).sum::<f64>() / 100.0;
            let lost = (best - mean) / (best - worst);
            // A tenth of the frames explores and loses about half.
            assert!(lost < 0.15, "worth {worth}: {mean} of {best}, {rewards:?}");
        }
    }

    #[test]
    fn draws_depend_on_the_seed_alone() {
        let of = |seed| counts(&format!("{{ by = 'bandit', explore = 0.5, seed = {seed} }}"), 40);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
