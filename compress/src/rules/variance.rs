//! Density by the running variance: `k_t` of the hybrid (Sato, Neural Compression Techniques for Distributed Deep Learning
//! Training), whose formula is not in the paper.
//!
//! Ours: `k = clamp(ceil(density n (EMA(var) / anchor)^alpha b^gamma), least n, most n)`, where the anchor is the mean variance
//! of the warm-up, and b the rate of the client's link over the median of its cohort, as the server measured it; `b^gamma` is
//! at least 1/8 and at most 8. At alpha 0.5, k follows the deviation, as EDGC's rank does. At alpha 0 and gamma 0 it is plain
//! top-k.

use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::rule::Table;
use crate::math::{self, square};
use crate::rules::density_range::DensityRange;
use crate::rules::method::{DensityRule, Entry};
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::selection::Selection;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: NAME,
        about: "By the running variance: fewer values are sent as updates become smaller.",
        examples: &["{ by = 'variance' }"],
        leaves_out: true,
    },
    kinds: &[KIND],
};

const NAME: &str = "variance";
// Kind of state, as numbered in the state file.
const KIND: u32 = 6;

// The density follows the deviation, as EDGC's rank does.
const ALPHA: f64 = 0.5;
// The bandwidth has no effect unless a spec asks for it.
const GAMMA: f64 = 0.0;
// Largest factor by bandwidth; the smallest is its inverse.
const MOST_FACTOR: f64 = 8.0;
const BETA: f64 = 0.9;
const WARM_UP: u32 = 3;

/// The rule `{ by = "variance", .. }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VarianceRule {
    range: DensityRange,
    alpha: f64,
    gamma: f64,
    beta: f64,
    warm_up: u32,
    clip: Option<f64>,
}

impl DensityRule for VarianceRule {
    fn read(table: &mut Table) -> Result<Self, Error> {
        Ok(Self {
            range: DensityRange::read(table)?,
            alpha: table.number("alpha", ALPHA, 0.0..=2.0)?,
            gamma: table.number("gamma", GAMMA, 0.0..=2.0)?,
            beta: table.number("beta", BETA, 0.0..=1.0)?,
            warm_up: table.rounds("warm_up", WARM_UP)?,
            clip: table.clip()?,
        })
    }

    fn table(&self) -> Table {
        self.range
            .in_table(Table::by(NAME))
            .with("alpha", self.alpha, ALPHA)
            .with("gamma", self.gamma, GAMMA)
            .with("beta", self.beta, BETA)
            .with("warm_up", self.warm_up.into(), WARM_UP.into())
            .with_clip(self.clip)
    }

    fn choose(&self, values: &[f32], context: RoundContext, rule_state: &mut RuleState) -> Selection {
        if values.iter().all(|value| *value == 0.0) {
            return Selection::Count(0);
        }
        let len = values.len();
        rule_state.claim(KIND);
        rule_state.observe(variance(values), self.beta, self.warm_up);
        // A tensor of equal values has no variance, and no ratio then.
        let ratio = math::pow(rule_state.mean / rule_state.anchor, self.alpha);
        let ratio = if ratio.is_finite() { ratio } else { 1.0 };
        let factor = math::pow(context.bandwidth, self.gamma);
        let factor = factor.clamp(1.0 / MOST_FACTOR, MOST_FACTOR);
        // The last factor keeps a rounding error from raising an exact integer by one.
        let wanted = f64::from(self.range.density) * len as f64 * ratio * factor * (1.0 - 1e-9);
        Selection::Count(self.range.clamp(wanted.ceil() as usize, len))
    }

    fn counts(&self) -> bool {
        true
    }

    fn most(&self, len: usize) -> usize {
        self.range.most.count(len)
    }

    fn wants_bandwidth(&self) -> bool {
        self.gamma > 0.0
    }

    fn clip(&self) -> Option<f32> {
        self.clip.map(|clip| clip as f32)
    }
}

fn variance(values: &[f32]) -> f64 {
    let len = values.len() as f64;
    let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / len;
    values.iter().map(|&value| square(f64::from(value) - mean)).sum::<f64>() / len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::{laplace, spec};

    /// The count after a warm-up at deviation 1 and one round at `deviation`, without an average.
    fn count(text: &str, deviation: f32) -> usize {
        count_over(text, deviation, None)
    }

    /// As [`count`], over a link of `bandwidth` millionths of the median.
    fn count_over(text: &str, deviation: f32, bandwidth: Option<u32>) -> usize {
        let (spec, mut state) = (spec(text), RuleState::default());
        let values = laplace(10_000, 3);
        spec.choose(&values, 0, &mut state);
        let scaled: Vec<f32> = values.iter().map(|value| value * deviation).collect();
        match spec.choose(&scaled, RoundContext::new(1, bandwidth), &mut state).chosen {
            Selection::Count(k) => k,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_count_follows_a_power_of_the_variance() {
        let of = |alpha: f64, deviation| {
            count(
                &format!("{{ by = 'variance', alpha = {alpha}, beta = 0, warm_up = 1 }}"),
                deviation,
            )
        };
        assert_eq!([0.25, 1.0, 4.0].map(|deviation| of(0.5, deviation)), [25, 100, 400]);
        assert_eq!([0.5, 2.0].map(|deviation| of(1.0, deviation)), [25, 400]);
        assert_eq!(
            [0.01, 1.0, 99.0].map(|deviation| of(0.0, deviation)),
            [100; 3],
            "plain top-k"
        );
        assert_eq!(
            [0.001, 1000.0].map(|deviation| of(0.5, deviation)),
            [10, 1000],
            "least and most"
        );
        let mut before = 0;
        for deviation in [0.2, 0.4, 0.8, 1.6] {
            let found = of(0.7, deviation);
            assert!(found > before);
            before = found;
        }
    }
    #[test]
    fn the_count_follows_a_power_of_the_bandwidth_within_an_eighth_and_eight_times() {
        let of = |gamma: f64, bandwidth: Option<f64>| {
            let text = format!("{{ by = 'variance', gamma = {gamma}, beta = 0, warm_up = 1 }}");
            count_over(&text, 1.0, bandwidth.map(|ratio| (ratio * 1e6) as u32))
        };
        let links = [0.25, 1.0, 4.0, 64.0].map(Some);
        assert_eq!(links.map(|ratio| of(0.5, ratio)), [50, 100, 200, 800]);
        assert_eq!([0.25, 4.0].map(|ratio| of(1.0, Some(ratio))), [25, 400]);
        assert_eq!(
            [0.0, 0.001, 4000.0].map(|ratio| of(1.0, Some(ratio))),
            [13, 13, 800],
            "clipped"
        );
        assert_eq!(
            [None, Some(1.0)].map(|ratio| of(0.5, ratio)),
            [100; 2],
            "the median, or unknown"
        );
        assert_eq!(links.map(|ratio| of(0.0, ratio)), [100; 4], "no bandwidth");
        let plain = "{ by = 'variance', alpha = 0, gamma = 0, beta = 0, warm_up = 1 }";
        let top_k = [0.1, 1.0, 10.0].map(|deviation| count_over(plain, deviation, Some(64_000_000)));
        assert_eq!(top_k, [100; 3], "plain top-k");
    }

    #[test]
    fn the_count_falls_with_neither_variance_nor_bandwidth() {
        let text = "{ by = 'variance', alpha = 0.7, gamma = 0.4, beta = 0, warm_up = 1 }";
        let ratios = [1, 9_000, 300_000, 800_000, 1_000_000, 3_000_000, 90_000_000, u32::MAX];
        let of = |deviation: f32| ratios.map(|ratio| count_over(text, deviation, Some(ratio)));
        let all = [0.05, 0.3, 0.9, 1.0, 1.5, 7.0].map(of);
        assert!(all.iter().all(|row| row.is_sorted()), "{all:?}");
        assert!(all.is_sorted_by(|less, more| less.iter().zip(more).all(|(less, more)| less <= more)));
        assert!(
            all[3].windows(2).filter(|pair| pair[0] < pair[1]).count() >= 5,
            "{all:?}"
        );
    }
}
