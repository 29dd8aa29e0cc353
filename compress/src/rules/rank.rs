//! A fixed rank, or a schedule of ranks.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;
use crate::forms::rule::{self, NumberOrRule, Table};
use crate::rules::method::DensityRule;
use crate::rules::schedule::{self, Schedule};

/// Largest rank of a spec.
pub const MAX_RANK: u32 = 1024;

/// Rank of a low-rank approximation (columns of each factor): `4`, or `{ by = "schedule", points = [[0, 8], [10, 2]]
/// }`.
#[derive(Debug, Clone, PartialEq)]
pub enum RankSpec {
    /// A constant rank.
    Fixed(u32),
    /// By round, rounded to the nearest integer.
    Schedule(Schedule),
}

impl RankSpec {
    /// The rank at `round`, from 1 to [`MAX_RANK`].
    pub fn at(&self, round: u64) -> u32 {
        match self {
            Self::Fixed(rank) => (*rank).clamp(1, MAX_RANK),
            Self::Schedule(schedule) => schedule.at(round).round().clamp(1.0, MAX_RANK.into()) as u32,
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
        let name = schedule::NAME;
        format!("a rank from 1 to {MAX_RANK}, or a rule: {{ by = {name:?}, .. }}")
    }

    fn number(number: f64) -> Result<Self, Error> {
        rank(number).map(Self::Fixed)
    }

    fn rule(by: &str, table: &mut Table) -> Result<Option<Self>, Error> {
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
                "{ by = 'entropy' }",
                r#"unknown rule "entropy", expected a rank from 1 to 1024"#,
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
