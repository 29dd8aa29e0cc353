//! Density by entropy (AGC-Entropy): a peaked tensor is sent sparser than a flat one.
//!
//! - *effective* (ours): `q_i = v_i^2 / sum v^2`, `H = -sum q ln q`; `exp(H)` is the effective number of values. Keeps
//!   `k = clamp(ceil(density n exp(mean H - anchor)), least n, most n)`; the anchor is the mean `H` of the warm-up.
//! - *percentile*: keeps the magnitudes that reach their `q`-th percentile.
//! - *literal*: as printed in the paper, with `q = softmax(|v| / max |v|)` and an entropy as the threshold on `|v|`. It
//!   degenerates to plain top-k (see [`Literal`]) and exists for comparison.

use crate::density::Density;
use crate::error::Error;
use crate::finite::largest;
use crate::forms::methods::MethodInfo;
use crate::forms::rule::{self, Table};
use crate::math;
use crate::rules::density_range::DensityRange;
use crate::rules::magnitude::{percentile, reaching};
use crate::rules::method::{DensityRule, Entry};
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::selection::Selection;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: NAME,
        about: "By the entropy of the values: a peaked tensor is sent sparser than a flat one.",
        examples: &[
            "{ by = 'entropy' }",
            "{ by = 'entropy', form = 'percentile' }",
            "{ by = 'entropy', form = 'literal' }",
        ],
        leaves_out: true,
    },
    kinds: &[EFFECTIVE, LITERAL],
};

const NAME: &str = "entropy";
// Kinds of state, as numbered in the state file.
const EFFECTIVE: u32 = 1;
const LITERAL: u32 = 2;
const FORMS: [&str; 3] = ["effective", "percentile", "literal"];

// The AGC paper does not publish its parameters: all defaults are ours (docs/reference/compressors.md).
const ALPHA: f64 = 0.9;
const BETA: f64 = 0.9;
const EPS: f64 = 1e-8;
const Q: f64 = 97.0;
const WARM_UP: u32 = 3;

/// The rule `{ by = "entropy", .. }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EntropyRule {
    form: Form,
    clip: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Effective(Effective),
    Percentile { q: f64, least: Density },
    Literal(Literal),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Effective {
    range: DensityRange,
    beta: f64,
    warm_up: u32,
}

/// Threshold `T = alpha * EMA(H) + (1 - alpha) * H` on `|v|`, with the moving average before this round.
///
/// Since `a = |v| / max |v|` is in [0, 1], the softmax is nearly flat: `ln n - 0.1234 <= H <= ln n` for any values.
/// Updates are below `ln n`, so no value reaches `T` and the `least` largest are sent: plain top-k.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Literal {
    alpha: f64,
    beta: f64,
    eps: f64,
    least: Density,
}

impl Default for EntropyRule {
    /// The effective form at a density of 1 %, between 0.1 % and 10 %.
    fn default() -> Self {
        Self::read(&mut Table::default()).expect("the defaults are in range")
    }
}

impl DensityRule for EntropyRule {
    fn read(table: &mut Table) -> Result<Self, Error> {
        let form = match table.form(&FORMS)? {
            0 => Form::Effective(Effective::read(table)?),
            1 => Form::Percentile {
                q: table.number("q", Q, 0.0..=100.0)?,
                least: table.density("least", rule::LEAST)?,
            },
            _ => Form::Literal(Literal {
                alpha: table.number("alpha", ALPHA, 0.0..=1.0)?,
                beta: table.number("beta", BETA, 0.0..=1.0)?,
                eps: table.number("eps", EPS, 0.0..=1.0)?,
                least: table.density("least", rule::LEAST)?,
            }),
        };
        let clip = table.clip()?;
        Ok(Self { form, clip })
    }

    fn table(&self) -> Table {
        let table = match &self.form {
            Form::Effective(form) => form.table(),
            Form::Percentile { q, least } => {
                Table::by(NAME)
                    .in_form(FORMS[1])
                    .with("q", *q, Q)
                    .with("least", (*least).into(), rule::LEAST)
            }
            Form::Literal(form) => Table::by(NAME)
                .in_form(FORMS[2])
                .with("alpha", form.alpha, ALPHA)
                .with("beta", form.beta, BETA)
                .with("eps", form.eps, EPS)
                .with("least", form.least.into(), rule::LEAST),
        };
        table.with_clip(self.clip)
    }

    fn choose(&self, values: &[f32], _: RoundContext, rule_state: &mut RuleState) -> Selection {
        match &self.form {
            Form::Effective(form) => form.choose(values, rule_state),
            Form::Percentile { q, least } => by_percentile(values, *q, *least),
            Form::Literal(form) => form.choose(values, rule_state),
        }
    }

    fn counts(&self) -> bool {
        matches!(self.form, Form::Effective(_))
    }

    fn most(&self, len: usize) -> usize {
        match &self.form {
            Form::Effective(form) => form.range.most.count(len),
            Form::Percentile { .. } | Form::Literal(_) => len,
        }
    }

    fn clip(&self) -> Option<f32> {
        self.clip.map(|clip| clip as f32)
    }
}

/// Selects the magnitudes that reach the `q`-th percentile. Shared with the Fisher rule.
pub(crate) fn by_percentile(values: &[f32], q: f64, least: Density) -> Selection {
    if largest(values) == 0.0 {
        return Selection::Count(0);
    }
    Selection::Reaching {
        threshold: percentile(values, q),
        least: least.count(values.len()),
    }
}

impl Effective {
    fn choose(&self, values: &[f32], rule_state: &mut RuleState) -> Selection {
        let Some(now) = energy_entropy(values) else {
            return Selection::Count(0);
        };
        rule_state.claim(EFFECTIVE);
        rule_state.observe(now, self.beta, self.warm_up);
        let wanted =
            f64::from(self.range.density) * values.len() as f64 * math::exp(rule_state.mean - rule_state.anchor);
        // The factor keeps rounding errors of the logarithms from raising an exact integer by one.
        let k = (wanted * (1.0 - 1e-9)).ceil() as usize;
        Selection::Count(self.range.clamp(k, values.len()))
    }

    fn read(table: &mut Table) -> Result<Self, Error> {
        Ok(Self {
            range: DensityRange::read(table)?,
            beta: table.number("beta", BETA, 0.0..=1.0)?,
            warm_up: table.rounds("warm_up", WARM_UP)?,
        })
    }

    fn table(&self) -> Table {
        self.range.in_table(Table::by(NAME)).with("beta", self.beta, BETA).with(
            "warm_up",
            self.warm_up.into(),
            WARM_UP.into(),
        )
    }
}

impl Literal {
    fn choose(&self, values: &[f32], rule_state: &mut RuleState) -> Selection {
        let Some(now) = softmax_entropy(values, self.eps) else {
            return Selection::Count(0);
        };
        rule_state.claim(LITERAL);
        let before = rule_state.mean_or(now);
        let threshold = self.alpha * before + (1.0 - self.alpha) * now;
        rule_state.follow(now, before, self.beta);
        Selection::Reaching {
            threshold: reaching(threshold),
            least: self.least.count(values.len()),
        }
    }
}

/// Entropy of `v_i^2 / sum v^2` in nats; `None` if all values are zero. One logarithm per value.
#[inline(never)]
pub fn energy_entropy(values: &[f32]) -> Option<f64> {
    let mut sum = 0.0;
    let mut weighted = 0.0;
    for &value in values {
        let square = f64::from(value) * f64::from(value);
        sum += square;
        weighted += if square > 0.0 { square * math::ln(square) } else { 0.0 };
    }
    (sum > 0.0).then(|| (math::ln(sum) - weighted / sum).max(0.0))
}

/// `-sum p ln(p + eps)` with `p = softmax(|v| / (max |v| + eps))`; `None` if all values are zero. Not optimized (two
/// exponentials and a logarithm per value), because this form exists for comparison.
#[inline(never)]
fn softmax_entropy(values: &[f32], eps: f64) -> Option<f64> {
    let most = f64::from(largest(values));
    if most == 0.0 {
        return None;
    }
    let weight = |value: f32| math::exp(f64::from(value.abs()) / (most + eps));
    let total: f64 = values.iter().map(|&value| weight(value)).sum();
    let entropy = values
        .iter()
        .map(|&value| weight(value) / total)
        .map(|p| -p * math::ln(p + eps));
    Some(entropy.sum())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::density::DensitySpec;
    use crate::rules::samples::{G8, gaussian, kept, laplace, spec, student};

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-5
    }

    /// The state after one round with this statistic.
    fn seen(kind: u32, mean: f64) -> RuleState {
        let mut rule_state = RuleState::default();
        rule_state.claim(kind);
        rule_state.follow(mean, mean, 0.0);
        rule_state
    }

    #[test]
    fn the_worked_example() {
        let weights = G8.map(|value| (f64::from(value.abs()) / (0.9 + 1e-8)).exp());
        let total: f64 = weights.iter().sum();
        let expected = [
            0.226492, 0.145222, 0.116285, 0.093114, 0.088082, 0.083322, 0.085194, 0.162289,
        ];
        assert!(weights.iter().zip(expected).all(|(weight, p)| near(weight / total, p)));
        assert!(near(softmax_entropy(&G8, 1e-8).unwrap(), 2.013786));

        let literal = spec("{ by = 'entropy', form = 'literal', least = 0.25 }");
        let mut rule_state = seen(LITERAL, 2.0);
        let selected = literal.choose(&G8, 1, &mut rule_state);
        let Selection::Reaching { threshold, least: 2 } = selected.chosen else {
            panic!("{selected:?}");
        };
        // The threshold uses the average before this round; the average afterwards includes this round.
        assert!(near(threshold.into(), 2.001379) && near(rule_state.mean, 2.001379));
        assert_eq!(kept(&G8, selected), [0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6]);

        let percentile = spec("{ by = 'entropy', form = 'percentile', q = 75 }").choose(&G8, 1, &mut rule_state);
        assert_eq!(kept(&G8, percentile), [0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6]);

        let entropy = energy_entropy(&G8).unwrap();
        assert!(near(entropy, 1.186213) && near(entropy.exp(), 3.274657), "{entropy}");
    }

    #[test]
    fn the_literal_average_is_updated_after_it_was_used() {
        let literal = spec("{ by = 'entropy', form = 'literal', alpha = 0.8, beta = 0.6, eps = 0 }");
        let (flat, peak) = ([1.0; 8], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let (first, second) = (
            softmax_entropy(&flat, 0.0).unwrap(),
            softmax_entropy(&peak, 0.0).unwrap(),
        );
        let mut rule_state = RuleState::default();
        let mut threshold = |values: &[f32]| match literal.choose(values, 0, &mut rule_state).chosen {
            Selection::Reaching { threshold, .. } => (f64::from(threshold), rule_state.mean),
            Selection::Count(_) | Selection::Weighted(_) => panic!(),
        };
        let (at, mean) = threshold(&flat);
        assert!(near(at, first) && near(mean, first) && near(first, 8f64.ln()));
        let (at, mean) = threshold(&peak);
        assert!(near(at, 0.8 * first + 0.2 * second) && near(mean, 0.6 * first + 0.4 * second));
    }

    /// Checks the bound that makes the literal form equal to top-k.
    fn is_degenerate(values: &[f32]) -> bool {
        let most = (values.len() as f64).ln() - 0.1234;
        let entropy = softmax_entropy(values, 0.0).unwrap();
        let literal = spec("{ by = 'entropy', form = 'literal', least = 0.03 }");
        let chosen = literal.choose(values, 0, &mut RuleState::default()).chosen;
        let Selection::Reaching { threshold, .. } = chosen else {
            return false;
        };
        let none = f64::from(largest(values)) >= most || values.iter().all(|value| value.abs() < threshold);
        entropy >= most && entropy <= (values.len() as f64).ln() + 1e-9 && none
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn the_literal_entropy_hardly_depends_on_the_values(
            values in prop::collection::vec(prop_oneof![any::<f32>(), -1f32..1.0, Just(0.0), Just(1.0)], 1..400)
        ) {
            let values: Vec<f32> = values.into_iter().filter(|value| value.is_finite()).collect();
            prop_assume!(largest(&values) > 0.0);
            prop_assert!(is_degenerate(&values));
        }
    }

    #[test]
    fn the_literal_form_keeps_exactly_the_least() {
        // The worst case of the bound: about a third of the values is one, the others are zero.
        let worst: Vec<f32> = (0..1000).map(|i| f32::from(u8::from(i < 339))).collect();
        let deficit = 1000f64.ln() - softmax_entropy(&worst, 0.0).unwrap();
        assert!((deficit - 0.1233).abs() < 1e-4, "{deficit}");
        for values in [gaussian(20_000, 1), laplace(20_000, 2), student(20_000, 3)] {
            let scale = 5.0 / largest(&values);
            let values: Vec<f32> = values.iter().map(|value| value * scale).collect();
            assert!(is_degenerate(&values));
            let literal = spec("{ by = 'entropy', form = 'literal', least = 0.03 }");
            let sent = kept(&values, literal.choose(&values, 0, &mut RuleState::default()));
            assert_eq!(sent.iter().filter(|&&value| value != 0.0).count(), 600);
        }
    }

    #[test]
    fn effective_numbers_are_those_of_the_distribution() {
        for (values, share) in [(gaussian(100_000, 1), 0.482), (laplace(100_000, 2), 0.316)] {
            let effective = energy_entropy(&values).unwrap().exp() / values.len() as f64;
            assert!((effective - share).abs() < 0.005, "{effective} {share}");
        }
        for (len, ones) in [(1, 1), (10, 1), (1000, 333)] {
            let values: Vec<f32> = (0..len).map(|i| if i < ones { -3e-30 } else { 0.0 }).collect();
            let entropy = energy_entropy(&values).unwrap();
            assert!(
                (entropy - (ones as f64).ln()).abs() < 1e-9 && entropy >= 0.0,
                "{entropy}"
            );
        }
    }

    /// `matter` equal values; the others are zero.
    fn flat(matter: usize) -> Vec<f32> {
        (0..10_000).map(|i| if i < matter { -0.5 } else { 0.0 }).collect()
    }

    fn counts(rule: &DensitySpec, rounds: &[usize]) -> Vec<usize> {
        let mut rule_state = RuleState::default();
        let count = |&matter: &usize| match rule.choose(&flat(matter), 0, &mut rule_state).chosen {
            Selection::Count(k) => k,
            Selection::Reaching { .. } | Selection::Weighted(_) => panic!(),
        };
        rounds.iter().map(count).collect()
    }

    #[test]
    fn the_effective_count_follows_the_effective_number() {
        let rule = spec("{ by = 'entropy', density = 0.02, beta = 0, warm_up = 2 }");
        let rounds = [400, 900, 600, 1200, 300, 150, 9000, 1, 603];
        // The anchor is the geometric mean of 400 and 900, as entropies are logarithms. The bounds are 20 and 2000.
        assert_eq!(counts(&rule, &rounds), [200, 200, 200, 400, 100, 50, 2000, 20, 201]);
        let slow = spec("{ by = 'entropy', density = 0.02, beta = 0.5, warm_up = 1 }");
        assert_eq!(counts(&slow, &[100, 400, 400, 100]), [200, 400, 566, 337]);
        assert_eq!(
            counts(&DensitySpec::Entropy(EntropyRule::default()), &[7000; 9]),
            [100; 9]
        );
    }

    #[test]
    fn scale_does_not_matter_to_the_effective_form() {
        let values = laplace(5000, 4);
        for scale in [1e-25, 1e25] {
            let scaled: Vec<f32> = values.iter().map(|value| value * scale).collect();
            let (a, b) = (energy_entropy(&values).unwrap(), energy_entropy(&scaled).unwrap());
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }
}
