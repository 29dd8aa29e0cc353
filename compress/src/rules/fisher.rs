//! Density by Fisher information (AGC-Fisher).
//!
//! The update alone gives `F_i = v_i^2`, the diagonal of the empirical Fisher matrix. As `F` is then the squared value, each
//! form is a threshold on `|v|`. With the squared gradients of the local training, `F_i = mean(g_i^2)` ranks otherwise.
//!
//! - *scaled* (ours): `T = kappa (alpha EMA(mean F) + (1 - alpha) mean F)`, `kappa = ln^2(1 / density) / 2`.
//!   Laplace-distributed values are kept at that density, Gaussian values at a lower one.
//! - *percentile*: keeps the same values as the percentile form of [`super::EntropyRule`].
//! - *literal*: as printed in the paper: `T = alpha EMA + (1 - alpha) mean F`, where the average is updated with the
//!   mean `F` of the *kept* values. That mean is above the threshold and therefore raises it: on Laplace draws the
//!   density falls to 11 % at alpha 0.3, 3.9 % at 0.5, 0.3 % at 0.7, and to `least` at 0.9.
//! - *gradients*: the `ceil(density n)` largest `F_i v_i^2`, twice what leaving `v_i` out costs in loss, to second order
//!   (LeCun et al. 1990, equation 5, with the Fisher diagonal for the Hessian's).

use crate::density::Density;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::rule::{self, Table};
use crate::math::{self, square};
use crate::rules::entropy::by_percentile;
use crate::rules::magnitude::{TINY, kth_largest, square_reaching, squares_reaching};
use crate::rules::method::{DensityRule, Entry};
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::selection::Selection;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: NAME,
        about: "By the squared values or gradients, which are the diagonal of the empirical Fisher information.",
        examples: &[
            "{ by = 'fisher' }",
            "{ by = 'fisher', form = 'percentile' }",
            "{ by = 'fisher', form = 'literal' }",
            "{ by = 'fisher', form = 'gradients' }",
        ],
        leaves_out: true,
    },
    kinds: &[SCALED, LITERAL],
};

const NAME: &str = "fisher";
// Kinds of state, as numbered in the state file.
const SCALED: u32 = 3;
const LITERAL: u32 = 4;
const FORMS: [&str; 4] = ["scaled", "percentile", "literal", "gradients"];

// The AGC paper does not publish its parameters: all defaults are ours (docs/reference/compressors.md).
const ALPHA: f64 = 0.9;
// On Laplace draws the density of `literal` settles at 3.9 % with 0.5, and at `least` with 0.9
// (docs/reference/compressors.md).
const LITERAL_ALPHA: f64 = 0.5;
const BETA: f64 = 0.9;
const DENSITY: f64 = 0.01;
const Q: f64 = 97.0;

/// The rule `{ by = "fisher", .. }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FisherRule {
    form: Form,
    /// Not a parameter of `Gradients`.
    least: Density,
    clip: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Scaled { density: Density, alpha: f64, beta: f64 },
    Percentile { q: f64 },
    Literal { alpha: f64, beta: f64 },
    Gradients { density: Density },
}

impl Default for FisherRule {
    /// The scaled form at a density of 1 % for Laplace-distributed values.
    fn default() -> Self {
        Self::read(&mut Table::default()).expect("the defaults are in range")
    }
}

impl DensityRule for FisherRule {
    fn read(table: &mut Table) -> Result<Self, Error> {
        let form = match table.form(&FORMS)? {
            0 => Form::Scaled {
                density: table.density("density", DENSITY)?,
                alpha: table.number("alpha", ALPHA, 0.0..=1.0)?,
                beta: table.number("beta", BETA, 0.0..=1.0)?,
            },
            1 => Form::Percentile {
                q: table.number("q", Q, 0.0..=100.0)?,
            },
            2 => Form::Literal {
                alpha: table.number("alpha", LITERAL_ALPHA, 0.0..=1.0)?,
                beta: table.number("beta", BETA, 0.0..=1.0)?,
            },
            _ => Form::Gradients {
                density: table.density("density", DENSITY)?,
            },
        };
        let least = match form {
            Form::Gradients { density } => density,
            _ => table.density("least", form.least())?,
        };
        Ok(Self {
            form,
            least,
            clip: table.clip()?,
        })
    }

    fn table(&self) -> Table {
        let table = match self.form {
            Form::Scaled { density, alpha, beta } => Table::by(NAME)
                .with("density", density.into(), DENSITY)
                .with("alpha", alpha, ALPHA)
                .with("beta", beta, BETA),
            Form::Percentile { q } => Table::by(NAME).in_form(FORMS[1]).with("q", q, Q),
            Form::Literal { alpha, beta } => Table::by(NAME)
                .in_form(FORMS[2])
                .with("alpha", alpha, LITERAL_ALPHA)
                .with("beta", beta, BETA),
            Form::Gradients { density } => {
                let table = Table::by(NAME).in_form(FORMS[3]);
                return table.with("density", density.into(), DENSITY).with_clip(self.clip);
            }
        };
        table
            .with("least", self.least.into(), self.form.least())
            .with_clip(self.clip)
    }

    fn choose(&self, values: &[f32], _: RoundContext, rule_state: &mut RuleState) -> Selection {
        let (kind, alpha, beta) = match self.form {
            Form::Percentile { q } => return by_percentile(values, q, self.least),
            Form::Gradients { .. } if values.iter().all(|value| *value == 0.0) => return Selection::Count(0),
            Form::Gradients { density } => return Selection::Weighted(density.count(values.len())),
            Form::Scaled { alpha, beta, .. } => (SCALED, alpha, beta),
            Form::Literal { alpha, beta } => (LITERAL, alpha, beta),
        };
        let (sum, non_zeros) = squares_reaching(TINY, values);
        if non_zeros == 0 {
            return Selection::Count(0);
        }
        rule_state.claim(kind);
        let now = sum / values.len() as f64;
        let before = rule_state.mean_or(now);
        let threshold = square_reaching(self.kappa() * (alpha * before + (1.0 - alpha) * now));
        let least = self.least.count(values.len());
        let fed = match kind {
            LITERAL => mean_of_kept(values, threshold, least),
            _ => now,
        };
        rule_state.follow(fed, before, beta);
        Selection::Reaching { threshold, least }
    }

    fn most(&self, len: usize) -> usize {
        match self.form {
            Form::Gradients { density } => density.count(len),
            _ => len,
        }
    }

    fn wants_squared_gradients(&self) -> bool {
        matches!(self.form, Form::Gradients { .. })
    }

    fn clip(&self) -> Option<f32> {
        self.clip.map(|clip| clip as f32)
    }
}

impl FisherRule {
    /// For Laplace-distributed values, `P(v^2 >= kappa mean(v^2)) = exp(-sqrt(2 kappa))`.
    fn kappa(&self) -> f64 {
        match self.form {
            Form::Scaled { density, .. } => 0.5 * square(math::ln(f64::from(density))),
            _ => 1.0,
        }
    }
}

impl Form {
    fn least(&self) -> f64 {
        match self {
            Self::Scaled { density, .. } => rule::tenth(*density),
            _ => rule::LEAST,
        }
    }
}

/// Mean square of the values that `Reaching { threshold, least }` keeps. `values` are not all zero.
fn mean_of_kept(values: &[f32], threshold: f32, least: usize) -> f64 {
    let (sum, count) = squares_reaching(threshold, values);
    if count >= least {
        return sum / count as f64;
    }
    let last = kth_largest(values, least);
    let (above, count) = squares_reaching(last.next_up(), values);
    if last == 0.0 {
        return above / count as f64;
    }
    let equal = (least - count) as f64 * f64::from(last) * f64::from(last);
    (above + equal) / least as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::{G8, gaussian, kept, laplace, spec, student};

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-5
    }

    fn share(sent: &[f32]) -> f64 {
        sent.iter().filter(|&&value| value != 0.0).count() as f64 / sent.len() as f64
    }

    #[test]
    fn the_worked_example() {
        let rule = spec("{ by = 'fisher', form = 'literal', alpha = 0.9, clip = 0.55 }");
        let mut rule_state = RuleState::default();
        rule_state.claim(LITERAL);
        rule_state.follow(0.2, 0.2, 0.9);
        let selected = rule.choose(&G8, 1, &mut rule_state);
        let Selection::Reaching { threshold, least: 1 } = selected.chosen else {
            panic!("{selected:?}");
        };
        assert!(near(f64::from(threshold).powi(2), 0.199_036_25));
        assert!(near(mean_of_kept(&G8, threshold, 1), 0.473333) && near(rule_state.mean, 0.227333));
        assert_eq!(kept(&G8, selected), [0.55, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.55]);
    }

    #[test]
    fn the_mean_is_over_what_is_really_kept() {
        let values = [3.0, -2.0, 0.0, 2.0, 1.0, 2.0];
        assert!(near(mean_of_kept(&values, 2.0, 1), 21.0 / 4.0));
        assert!(near(mean_of_kept(&values, 9.0, 1), 9.0));
        assert!(near(mean_of_kept(&values, 9.0, 3), 17.0 / 3.0));
        assert!(near(mean_of_kept(&values, f32::INFINITY, 5), 22.0 / 5.0));
        assert!(near(mean_of_kept(&values, 9.0, 6), 22.0 / 5.0), "zeros are not kept");
    }

    #[test]
    fn percentiles_of_squares_and_of_magnitudes_keep_the_same() {
        for values in [gaussian(5000, 1), laplace(4999, 2), student(1, 3), G8.to_vec()] {
            for q in ["0", "75", "93", "97", "99.99", "100"] {
                let sent = |by: &str| {
                    let rule = spec(&format!("{{ by = '{by}', form = 'percentile', q = {q} }}"));
                    kept(&values, rule.choose(&values, 0, &mut RuleState::default()))
                };
                assert_eq!(sent("fisher"), sent("entropy"));
            }
        }
    }

    /// Mean density of the last rounds, after `rounds` rounds of independent Laplace draws.
    fn settled(rule: &str, rounds: u64) -> f64 {
        let (rule, mut rule_state) = (spec(rule), RuleState::default());
        let densities: Vec<f64> = (0..rounds)
            .map(|round| {
                let values = laplace(10_000, round);
                share(&kept(&values, rule.choose(&values, round, &mut rule_state)))
            })
            .collect();
        let last = &densities[densities.len() - 20..];
        last.iter().sum::<f64>() / last.len() as f64
    }

    #[test]
    fn the_literal_form_feeds_on_itself() {
        let mut first = RuleState::default();
        let values = laplace(50_000, 77);
        let rule = spec("{ by = 'fisher', form = 'literal' }");
        let at_first = share(&kept(&values, rule.choose(&values, 0, &mut first)));
        assert!((at_first - 0.243).abs() < 0.01, "{at_first}");
        let half = settled("{ by = 'fisher', form = 'literal' }", 150);
        assert!((half - 0.0393).abs() < 0.003, "{half}");
        let less = settled("{ by = 'fisher', form = 'literal', alpha = 0.3 }", 60);
        assert!((less - 0.114).abs() < 0.006, "{less}");
        let most = settled("{ by = 'fisher', form = 'literal', alpha = 0.9, beta = 0.5 }", 60);
        assert!((most - 0.001).abs() < 1e-9, "{most}");
    }

    #[test]
    fn the_scaled_form_keeps_the_density_asked_of_laplace_draws() {
        for density in [0.07, 0.01] {
            let rule = format!("{{ by = 'fisher', density = {density} }}");
            let kept = settled(&rule, 20);
            assert!((kept / density - 1.0).abs() < 0.08, "{density} {kept}");
        }
        let rule = |density: f64| FisherRule::read(&mut Table::default().with("density", density, 0.0)).unwrap();
        for (density, kappa) in [(0.07, 3.54), (0.01, 10.6), (0.001, 23.9)] {
            assert!((rule(density).kappa() / kappa - 1.0).abs() < 0.01);
        }
    }
}
