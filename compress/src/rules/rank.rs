//! A fixed rank, or a rule that chooses it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::forms::rule::{self, NumberOrRule, Table};
use crate::layout::Shape;
use crate::rules::entropy_rank::{self, EntropyRank, Matrix};
use crate::rules::method::DensityRule;
use crate::rules::rule_state::RuleState;
use crate::rules::schedule::{self, Schedule};
use crate::rules::spectrum::MAX_RANK;

/// Rank of a low-rank approximation (columns of each factor): `4`, `{ by = "schedule", points = [[0, 8], [10, 2]] }` or
/// `{ by = "entropy", most = 32 }`.
#[derive(Debug, Clone, PartialEq)]
pub enum RankSpec {
    /// A constant rank.
    Fixed(u32),
    /// By round, rounded to the nearest integer.
    Schedule(Schedule),
    /// By the entropy of the values (EDGC).
    Entropy(EntropyRank),
}

impl RankSpec {
    /// The rank of `tensor` at `round`, from 1 to [`MAX_RANK`].
    pub(crate) fn choose(&self, tensor: &Matrix<'_>, round: u64, rule_state: &mut RuleState) -> u32 {
        match self {
            Self::Entropy(rule) => rule.choose(tensor, rule_state),
            _ => self.at(round),
        }
    }

    pub(crate) fn most(&self, shape: Shape) -> u32 {
        match self {
            Self::Fixed(_) => self.at(0),
            Self::Schedule(schedule) => schedule.most().round().clamp(1.0, MAX_RANK.into()) as u32,
            Self::Entropy(rule) => rule.most_of(shape),
        }
    }

    /// The rank at `round`, from 1 to [`MAX_RANK`]; the largest that a rule by entropy chooses.
    pub fn at(&self, round: u64) -> u32 {
        match self {
            Self::Fixed(rank) => (*rank).clamp(1, MAX_RANK),
            Self::Schedule(schedule) => schedule.at(round).round().clamp(1.0, MAX_RANK.into()) as u32,
            Self::Entropy(rule) => rule.most(),
        }
    }
}

fn rank(number: f64) -> Result<u32, Error> {
    if number.fract() == 0.0 && (1.0..=MAX_RANK.into()).contains(&number) {
        return Ok(number as u32);
    }
    Err(Error::Usage(format!(
        "a rank must be a whole number from 1 to {MAX_RANK}, not {number}"
    )))
}

impl NumberOrRule for RankSpec {
    fn forms() -> String {
        let a = schedule::NAME;
        let b = entropy_rank::NAME;
        format!("a rank from 1 to {MAX_RANK}, or a rule: {{ by = {a:?} | {b:?}, .. }}")
    }

    fn number(number: f64) -> Result<Self, Error> {
        rank(number).map(Self::Fixed)
    }

    fn rule(by: &str, table: &mut Table) -> Result<Option<Self>, Error> {
        if by == entropy_rank::NAME {
            return EntropyRank::read(table).map(|rule| Some(Self::Entropy(rule)));
        }
        if by != schedule::NAME {
            return Ok(None);
        }
        let schedule = Schedule::parse(table, |value| rank(value).map(drop))?;
        Ok(Some(Self::Schedule(schedule)))
    }
}

impl<'de> Deserialize<'de> for RankSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        rule::deserialize(deserializer)
    }
}

impl Serialize for RankSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(rank) => rank.serialize(serializer),
            Self::Schedule(schedule) => schedule.table().serialize(serializer),
            Self::Entropy(rule) => rule.table().serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Doc {
        rank: RankSpec,
    }

    #[test]
    fn forms_round_trip_and_refusals_say_what_was_expected() {
        for (text, ranks) in [
            ("4", [4, 4, 4]),
            ("{ by = 'schedule', points = [[0, 8], [10, 2]] }", [8, 8, 2]),
            (
                "{ by = 'schedule', points = [[0, 8], [10, 2]], shape = 'linear' }",
                [8, 5, 2],
            ),
            ("{ by = 'entropy' }", [32, 32, 32]),
            (
                "{ by = 'entropy', form = 'measured', estimate = 'histogram', most = 16, least = 2, window = 5, limit = 1, \
                 warm_up = 9, alpha = 0.1, beta = 0.5 }",
                [16, 16, 16],
            ),
        ] {
            let doc: Doc = toml::from_str(&format!("rank = {text}")).unwrap();
            assert_eq!([0, 5, 10].map(|round| doc.rank.at(round)), ranks);
            assert_eq!(toml::from_str::<Doc>(&toml::to_string(&doc).unwrap()).unwrap(), doc);
        }
        for (text, expected) in [
            ("0", "a rank must be a whole number from 1 to 1024, not 0"),
            ("1025", "a rank must be a whole number from 1 to 1024, not 1025"),
            ("2.5", "a rank must be a whole number from 1 to 1024, not 2.5"),
            ("'four'", "expected a rank from 1 to 1024, or a rule"),
            (
                "{ by = 'fisher' }",
                r#"unknown rule "fisher", expected a rank from 1 to 1024"#,
            ),
            (
                "{ by = 'entropy', most = 2000 }",
                "`most` must be from 1 to 1024, not 2000",
            ),
            (
                "{ by = 'entropy', most = 2.5 }",
                "`most` must be a whole number, not 2.5",
            ),
            (
                "{ by = 'entropy', most = 4, least = 5 }",
                "`least` <= `most` must hold, not 5, 4",
            ),
            ("{ by = 'entropy', limit = 0 }", "`limit` must be from 1 to 1024, not 0"),
            (
                "{ by = 'entropy', window = 0 }",
                "`window` must be a whole number of rounds",
            ),
            ("{ by = 'entropy', beta = 0 }", "`beta` must be from 0.001 to 1, not 0"),
            (
                "{ by = 'entropy', estimate = 'normal' }",
                r#"estimate "normal", expected "gaussian" or "histogram""#,
            ),
            (
                "{ by = 'entropy', form = 'theory' }",
                r#"form "theory", expected "random" or "measured""#,
            ),
            (
                "{ by = 'schedule', points = [[0, 0.5]] }",
                "a rank must be a whole number",
            ),
        ] {
            let refusal = toml::from_str::<Doc>(&format!("rank = {text}"))
                .unwrap_err()
                .to_string();
            assert!(refusal.contains(expected), "{text}\n{refusal}");
        }
        assert_eq!(
            (RankSpec::Fixed(0).at(0), RankSpec::Fixed(u32::MAX).at(0)),
            (1, MAX_RANK)
        );
    }
}
