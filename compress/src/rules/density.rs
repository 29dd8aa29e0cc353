//! A fixed density, or a rule that chooses it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::density::Density;
use crate::error::Error;
use crate::forms::rule as table;
use crate::forms::rule::{NumberOrRule, Table};
use crate::rules::bandit::{self, BanditRule};
use crate::rules::entropy::{self, EntropyRule};
use crate::rules::fisher::{self, FisherRule};
use crate::rules::method::{DensityRule, Entry};
use crate::rules::round_context::RoundContext;
use crate::rules::rule_state::RuleState;
use crate::rules::schedule::{self, Schedule};
use crate::rules::selection::{RuleDecision, Selection};
use crate::rules::variance::{self, VarianceRule};

/// Generates [`DensitySpec`] and `METHODS` from the table. Each line is `Variant(Type) = module`; the type implements
/// [`DensityRule`], and the module defines `METHOD`.
macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident($rule:ident) = $module:ident,)*) => {
        /// A density (share of values sent), or a rule that chooses it: `0.01`, `{ by = "entropy", form = "effective" |
        /// "percentile" | "literal" }`, `{ by = "fisher", form = "scaled" | "percentile" | "literal" | "gradients" }` or `{ by =
        /// "schedule", points = [[0, 0.25], [10, 0.01]] }`. Omitted parameters have their defaults.
        #[derive(Debug, Clone, PartialEq)]
        pub enum DensitySpec {
            /// A constant density.
            Fixed(Density),
            $($(#[$doc])* $variant($rule),)*
        }

        // Every rule, in the order of error texts.
        pub(crate) const METHODS: &[Entry] = &[$($module::METHOD,)*];

        impl DensitySpec {
            /// The rule, or the constant density.
            fn parts(&self) -> Result<&dyn DensityRule, Density> {
                match self {
                    Self::Fixed(density) => Err(*density),
                    $(Self::$variant(rule) => Ok(rule),)*
                }
            }

            fn read(by: &str, table: &mut Table) -> Result<Option<Self>, Error> {
                match by {
                    $(_ if by == $module::METHOD.info.name => Ok(Some(Self::$variant($rule::read(table)?))),)*
                    _ => Ok(None),
                }
            }
        }
    };
}

rules! {
    /// By the entropy of the values: a peaked tensor is sent sparser than a flat one.
    Entropy(EntropyRule) = entropy,
    /// By the squared values, which are the diagonal of the empirical Fisher information.
    Fisher(FisherRule) = fisher,
    /// By the running variance: fewer values are sent as updates become smaller.
    Variance(VarianceRule) = variance,
    /// By trial: the density whose frames kept the most energy for their bits.
    Bandit(BanditRule) = bandit,
    /// By round; values above 1 are clamped to 1.
    Schedule(Schedule) = schedule,
}

/// Whether `kind` is the number of a rule's state in a state file, or 0, the number of none.
pub(crate) fn is_kind(kind: u32) -> bool {
    kind == 0 || METHODS.iter().any(|entry| entry.kinds.contains(&kind))
}

impl DensitySpec {
    /// Selects values of `values`, which are finite, and updates `rule_state`. A tensor of zeros does not change the
    /// state; neither does a fixed density or a schedule. The state of another rule is reset first.
    pub(crate) fn choose(
        &self,
        values: &[f32],
        context: impl Into<RoundContext>,
        rule_state: &mut RuleState,
    ) -> RuleDecision {
        let (chosen, clip) = match self.parts() {
            Ok(rule) => (rule.choose(values, context.into(), rule_state), rule.clip()),
            Err(density) => (Selection::Count(density.count(values.len())), None),
        };
        RuleDecision { chosen, clip }
    }

    pub(crate) fn wants_squared_gradients(&self) -> bool {
        self.parts().is_ok_and(DensityRule::wants_squared_gradients)
    }

    /// Whether the bandwidth of the client's link changes what the rule selects.
    pub(crate) fn wants_bandwidth(&self) -> bool {
        self.parts().is_ok_and(DensityRule::wants_bandwidth)
    }

    /// Succeeds if the rule can go on from a state that was loaded.
    ///
    /// # Errors
    /// `Mismatch` (see [`DensityRule::accepts`]).
    pub(crate) fn accepts(&self, rule_state: &RuleState) -> Result<(), Error> {
        self.parts().map_or(Ok(()), |rule| rule.accepts(rule_state))
    }

    pub(crate) fn most(&self, len: usize) -> usize {
        self.parts()
            .map_or_else(|density| density.count(len), |rule| rule.most(len))
    }

    pub(crate) fn counts(&self) -> bool {
        self.parts().map_or(true, |rule| rule.counts())
    }
}

impl From<Density> for DensitySpec {
    fn from(density: Density) -> Self {
        Self::Fixed(density)
    }
}

impl NumberOrRule for DensitySpec {
    fn forms() -> String {
        let names: Vec<String> = METHODS.iter().map(|entry| format!("{:?}", entry.info.name)).collect();
        let names = names.join(" | ");
        format!("a density above 0 and at most 1, or a rule: {{ by = {names}, .. }}")
    }

    fn number(number: f64) -> Result<Self, Error> {
        Density::new(number).map(Self::Fixed)
    }

    fn rule(by: &str, table: &mut Table) -> Result<Option<Self>, Error> {
        Self::read(by, table)
    }
}

impl<'de> Deserialize<'de> for DensitySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        table::deserialize(deserializer)
    }
}

impl Serialize for DensitySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.parts() {
            Ok(rule) => rule.table().serialize(serializer),
            Err(density) => density.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rules::samples::spec;
    use crate::rules::schedule::Course;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Doc {
        density: DensitySpec,
    }

    #[test]
    fn every_form_round_trips_as_it_was_written() {
        for written in [
            "0.01",
            "{ by = 'entropy' }",
            "{ by = 'entropy', form = 'percentile' }",
            "{ by = 'entropy', form = 'literal' }",
            "{ by = 'entropy', density = 0.02, least = 0.01, most = 0.5, beta = 0.5, warm_up = 5, clip = 0.55 }",
            "{ by = 'entropy', form = 'percentile', q = 99.5, least = 0.01, clip = 2.5 }",
            "{ by = 'entropy', form = 'literal', alpha = 0.5, beta = 0.25, eps = 1e-6, least = 0.25, clip = 0.1 }",
            "{ by = 'fisher' }",
            "{ by = 'fisher', density = 0.07, alpha = 0.5, beta = 0.8, least = 0.002, clip = 3.5 }",
            "{ by = 'fisher', form = 'percentile', q = 93.5 }",
            "{ by = 'fisher', form = 'literal', alpha = 0.3, beta = 0.8, least = 0.002, clip = 3.5 }",
            "{ by = 'fisher', form = 'gradients', density = 0.07, clip = 3.5 }",
            "{ by = 'variance' }",
            "{ by = 'bandit' }",
            "{ by = 'bandit', density = 0.02, least = 0.01, most = 0.5, worth = 2, explore = 0.5, seed = 5, clip = 0.5 }",
            "{ by = 'variance', density = 0.02, least = 0.01, most = 0.5, alpha = 1, gamma = 0.5, beta = 0.5, warm_up = 5, clip = 0.5 }",
            "{ by = 'schedule', points = [[0, 0.25], [10, 0.05]] }",
            "{ by = 'schedule', shape = 'linear', points = [[3, 0.25]] }",
            "{ by = 'schedule', shape = 'exponential', points = [[0, 0.25], [10, 0.05], [30, 0.01]] }",
        ] {
            let doc = Doc { density: spec(written) };
            let text = toml::to_string(&doc).unwrap();
            assert_eq!(toml::from_str::<Doc>(&text).unwrap(), doc, "{written}\n{text}");
            // Defaults are omitted, so the output has the keys of the input; a plain number is one key.
            let keys = |text: &str| text.matches('=').count();
            assert_eq!(keys(&text), keys(written).max(1), "{written}\n{text}");
        }
        let plain: DensitySpec =
            spec("{ by = 'entropy', form = 'effective', density = 0.01, beta = 0.9, warm_up = 3 }");
        assert_eq!(plain, DensitySpec::Entropy(EntropyRule::default()));
        assert_eq!(plain, spec("{ by = 'entropy', least = 0.001, most = 0.1 }"));
        assert_eq!(
            spec("{ by = 'fisher', form = 'scaled', density = 0.01 }"),
            DensitySpec::Fisher(FisherRule::default())
        );
    }

    #[test]
    fn refusals_say_what_was_expected() {
        let forms = r#"a density above 0 and at most 1, or a rule: { by = "entropy" | "fisher" | "variance" | "bandit" | "schedule", .. }"#;
        for (text, expected) in [
            ("'entropy'", forms),
            ("true", forms),
            ("{ by = 'entropi' }", r#"unknown rule "entropi", expected a density"#),
            ("{ q = 97 }", "missing `by`, expected a density"),
            ("0", "a density must be above 0 and at most 1, not 0"),
            ("1.5", "a density must be above 0 and at most 1, not 1.5"),
            ("{ by = 'entropy', Q = 97 }", "unknown field `Q`, expected one of"),
            (
                "{ by = 'entropy', q = 97 }",
                r#"`q` is not a parameter of { by = "entropy", form = "effective" }"#,
            ),
            (
                "{ by = 'fisher', warm_up = 97 }",
                r#"`warm_up` is not a parameter of { by = "fisher", form = "scaled" }"#,
            ),
            (
                "{ by = 'bandit', seed = 0.5 }",
                "`seed` must be a whole number, not 0.5",
            ),
            (
                "{ by = 'bandit', worth = -1 }",
                "`worth` must be from 0 to 1000, not -1",
            ),
            (
                "{ by = 'variance', q = 97 }",
                r#"`q` is not a parameter of { by = "variance" }"#,
            ),
            (
                "{ by = 'variance', most = 0.001 }",
                "`least` <= `density` <= `most` must hold",
            ),
            (
                "{ by = 'schedule', points = [[0, 1]], form = 'x' }",
                r#"`form` is not a parameter of { by = "schedule" }"#,
            ),
            (
                "{ by = 'entropy', points = [[0, 1]] }",
                "`points` is not a parameter of",
            ),
            (
                "{ by = 'entropy', form = 'scaled' }",
                r#"form "scaled", expected "effective", "percentile" or "literal""#,
            ),
            (
                "{ by = 'fisher', form = 'effective' }",
                r#"form "effective", expected "scaled", "percentile", "literal" or "gradients""#,
            ),
            (
                "{ by = 'fisher', form = 'gradients', least = 0.001 }",
                r#"`least` is not a parameter of { by = "fisher", form = "gradients" }"#,
            ),
            ("{ by = 'entropy', beta = 1.5 }", "`beta` must be from 0 to 1, not 1.5"),
            ("{ by = 'entropy', beta = nan }", "`beta` must be from 0 to 1, not NaN"),
            ("{ by = 'entropy', beta = 'high' }", "invalid type: string \"high\""),
            (
                "{ by = 'entropy', form = 'percentile', q = 101 }",
                "`q` must be from 0 to 100, not 101",
            ),
            (
                "{ by = 'entropy', clip = 0 }",
                "`clip` must be positive and finite, not 0",
            ),
            (
                "{ by = 'entropy', clip = inf }",
                "`clip` must be positive and finite, not inf",
            ),
            (
                "{ by = 'entropy', warm_up = 0 }",
                "`warm_up` must be a whole number of rounds, at least 1",
            ),
            (
                "{ by = 'entropy', warm_up = 2.5 }",
                "`warm_up` must be a whole number of rounds, at least 1",
            ),
            (
                "{ by = 'entropy', least = 0 }",
                "`least`: a density must be above 0 and at most 1, not 0",
            ),
            (
                "{ by = 'entropy', least = 0.2 }",
                "`least` <= `density` <= `most` must hold, not 0.2, 0.01, 0.1",
            ),
            ("{ by = 'schedule' }", "a schedule needs points = [[round, value], ..]"),
            (
                "{ by = 'schedule', points = [] }",
                "a schedule needs points = [[round, value], ..]",
            ),
            (
                "{ by = 'schedule', points = [[1, 0.5], [1, 0.2]] }",
                "rounds of a schedule must ascend",
            ),
            (
                "{ by = 'schedule', points = [[1, 1.5]] }",
                "a density must be above 0 and at most 1, not 1.5",
            ),
            (
                "{ by = 'schedule', points = [[1, 0.5]], shape = 'cubic' }",
                r#""steps", "linear" or "exponential""#,
            ),
        ] {
            let refusal = toml::from_str::<Doc>(&format!("density = {text}"))
                .unwrap_err()
                .to_string();
            assert!(refusal.contains(expected), "{text}\n{refusal}");
        }
    }

    #[test]
    fn every_example_is_of_its_rule_and_has_the_states_of_the_table() {
        let mut taken = BTreeSet::new();
        for entry in METHODS {
            let mut kinds = BTreeSet::new();
            for text in entry.info.examples {
                let (spec, mut rule_state) = (spec(text), RuleState::default());
                let by = spec.parts().unwrap().table().word("by");
                assert_eq!(by.as_deref(), Some(entry.info.name), "{text}");
                spec.choose(&[1.0, 2.0], 0, &mut rule_state);
                kinds.insert(rule_state.kind);
            }
            kinds.remove(&0);
            assert_eq!(kinds, entry.kinds.iter().copied().collect(), "{}", entry.info.name);
            assert!(kinds.into_iter().all(|kind| is_kind(kind) && taken.insert(kind)));
        }
    }

    #[test]
    fn fixed_and_scheduled_counts_look_only_at_the_length() {
        let mut rule_state = RuleState::default();
        let mut count = |text, round| spec(text).choose(&[1.0; 1000], round, &mut rule_state);
        let expected = |k| RuleDecision {
            chosen: Selection::Count(k),
            clip: None,
        };
        assert_eq!(count("0.07", 0), expected(70));
        assert_eq!(
            count("{ by = 'schedule', points = [[5, 0.5], [9, 0.001]] }", 8),
            expected(500)
        );
        assert_eq!(
            count("{ by = 'schedule', points = [[5, 0.5], [9, 0.001]] }", 9),
            expected(1)
        );
        assert_eq!(rule_state, RuleState::default());
        let beyond = DensitySpec::Schedule(Schedule::new(vec![(0, 8.0)], Course::Steps).unwrap());
        assert_eq!(beyond.choose(&[1.0; 9], 0, &mut rule_state), expected(9));
    }

    #[test]
    fn zeros_choose_nothing_and_are_not_remembered() {
        let learning = METHODS.iter().filter(|entry| !entry.kinds.is_empty());
        for text in learning.flat_map(|entry| entry.info.examples) {
            let (spec, mut rule_state) = (spec(text), RuleState::default());
            for zeros in [&[0.0; 40][..], &[-0.0], &[]] {
                assert_eq!(
                    spec.choose(zeros, 1, &mut rule_state).chosen,
                    Selection::Count(0),
                    "{text}"
                );
                assert_eq!(rule_state, RuleState::default());
            }
            for one in [f32::from_bits(1), -2.0, f32::MAX] {
                let chosen = spec.choose(&[one], 1, &mut rule_state).chosen;
                match chosen {
                    Selection::Count(k) | Selection::Weighted(k) => assert_eq!(k, 1),
                    Selection::Reaching { threshold, least } => assert!(threshold > 0.0 && least == 1),
                }
                let forgets = text.contains("percentile") || text.contains("gradients") || !text.contains("by");
                assert_eq!(rule_state == RuleState::default(), forgets, "{text}");
            }
        }
    }

    #[test]
    fn another_rule_starts_afresh() {
        let values: Vec<f32> = (1..=100).map(|i| i as f32).collect();
        let (mut fresh, mut used) = (RuleState::default(), RuleState::default());
        spec("{ by = 'entropy' }").choose(&values, 0, &mut used);
        let fisher = spec("{ by = 'fisher' }");
        assert_eq!(
            fisher.choose(&values, 1, &mut used),
            fisher.choose(&values, 1, &mut fresh)
        );
        assert_eq!(used, fresh);
    }
}
