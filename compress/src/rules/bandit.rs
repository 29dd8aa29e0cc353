//! Density by trial and reward: an agent ([`super::agent`]) with five arms for each tensor, densities from `least` to
//! `most` with equal ratios.

use crate::density::Density;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::rule::Table;
use crate::math;
use crate::rules::agent::{Agent, NAME};
use crate::rules::density_range::DensityRange;
use crate::rules::method::{DensityRule, Entry};
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::selection::Selection;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: NAME,
        about: "By trial: the density whose frames kept the most energy for their bits.",
        examples: &["{ by = 'bandit' }"],
        leaves_out: true,
    },
    kinds: &[KIND],
};

// Kind of state, as numbered in the state file.
const KIND: u32 = 7;
const ARMS: usize = 5;
const WORTH: f64 = 1.0;

/// The rule `{ by = "bandit", .. }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BanditRule {
    range: DensityRange,
    agent: Agent,
    clip: Option<f64>,
}

impl DensityRule for BanditRule {
    fn read(table: &mut Table) -> Result<Self, Error> {
        Ok(Self {
            range: DensityRange::read(table)?,
            agent: Agent::read(table, WORTH)?,
            clip: table.clip()?,
        })
    }

    fn table(&self) -> Table {
        let table = self.range.in_table(Table::by(NAME));
        self.agent.in_table(table, WORTH).with_clip(self.clip)
    }

    fn choose(&self, values: &[f32], _: RoundContext, rule_state: &mut RuleState) -> Selection {
        if values.iter().all(|value| *value == 0.0) {
            return Selection::Count(0);
        }
        rule_state.claim(KIND);
        let arm = self.agent.choose(rule_state.trials.get_or_insert_default(), ARMS, 0);
        rule_state.rounds = rule_state.rounds.saturating_add(1);
        Selection::Count(self.density_of(arm).count(values.len()))
    }

    fn counts(&self) -> bool {
        true
    }

    fn most(&self, len: usize) -> usize {
        self.range.most.count(len)
    }

    fn accepts(&self, rule_state: &RuleState) -> Result<(), Error> {
        match &rule_state.trials {
            Some(trials) if rule_state.kind == KIND => self.agent.accepts(trials, ARMS, "density"),
            _ => Ok(()),
        }
    }

    fn clip(&self) -> Option<f32> {
        self.clip.map(|clip| clip as f32)
    }
}

impl BanditRule {
    fn density_of(&self, arm: usize) -> Density {
        let least = f64::from(self.range.least);
        let most = f64::from(self.range.most);
        let density = least * math::pow(most / least, arm as f64 / (ARMS - 1) as f64);
        Density::new(density.min(1.0)).unwrap_or(self.range.density)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::agent::Outcome;
    use crate::rules::samples::{laplace, spec};

    /// Of the `k` largest of `values`, at 12 bits each.
    fn outcome(values: &[f32], k: usize) -> Outcome {
        let mut squares: Vec<f64> = values.iter().map(|value| f64::from(*value).powi(2)).collect();
        squares.sort_by(|a, b| b.total_cmp(a));
        let kept = squares[..k].iter().sum::<f64>() / squares.iter().sum::<f64>();
        let bits = 12.0 * k as f64 / values.len() as f64;
        Outcome { kept, bits }
    }

    fn counts(text: &str, frames: usize) -> Vec<usize> {
        let (spec, mut state) = (spec(text), RuleState::default());
        let frame = |at: usize| {
            let values = laplace(4000, at as u64);
            let Selection::Count(k) = spec.choose(&values, at as u64, &mut state).chosen else {
                panic!("a count")
            };
            state.trials.as_mut().unwrap().teach(outcome(&values, k));
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
                let Outcome { kept, bits } = outcome(&values, k);
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
