//! The `space` of a `[train]` table: which part of a model is trained.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Which combinations of a model's values are trained. Every number is at least 1.
///
/// `{ shared = 16000 }`, `{ lowrank = 8 }` or `{ lowrank = 8, basis = "dct" }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub enum SpaceSpec {
    /// So many values in all: each stands for a seeded group of weights of one tensor, with a seeded sign for each weight.
    Shared(u32),
    /// Of every matrix, a matrix of this rank is trained, whose longer side is spanned by a fixed basis.
    LowRank {
        /// The rank.
        rank: u32,
        /// The basis of the longer side.
        basis: Basis,
    },
}

/// Fixed orthonormal vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Drawn by the seed.
    #[default]
    Random,
    /// The slowest waves of the discrete cosine transform (Ahmed et al. 1974), for inputs whose neighbors are alike.
    Dct,
}

impl SpaceSpec {
    /// The same if every number is in range.
    ///
    /// # Errors
    /// `Usage`, naming the key and its range.
    pub fn checked(self) -> Result<Self, Error> {
        let (key, number) = match self {
            Self::Shared(values) => ("shared", values),
            Self::LowRank { rank, .. } => ("lowrank", rank),
        };
        match number {
            1..=MOST => Ok(self),
            _ => Err(Error::Usage(format!(
                "`space.{key}` is {number}, but must be 1 to {MOST}"
            ))),
        }
    }
}

/// Most values: the number of one and a sign fit a `u32`.
pub(super) const MOST: u32 = u32::MAX >> 1;

/// The table as written.
#[derive(Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a space: { shared = 16000 }, a number of values, or { lowrank = 8 }, a rank"
)]
struct Raw {
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lowrank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    basis: Option<Basis>,
}

impl TryFrom<Raw> for SpaceSpec {
    type Error = Error;

    fn try_from(raw: Raw) -> Result<Self, Error> {
        let refused = |why: &str| Err(Error::Usage(why.to_owned()));
        match (raw.shared, raw.lowrank, raw.basis) {
            (Some(values), None, None) => Self::Shared(values).checked(),
            (None, Some(rank), basis) => {
                let basis = basis.unwrap_or_default();
                Self::LowRank { rank, basis }.checked()
            }
            (Some(_), None, Some(_)) => refused("`space.basis` belongs to `lowrank`, not to `shared`; remove it"),
            (Some(_), Some(_), _) => refused("give one of `space.shared` and `space.lowrank`, not both"),
            (None, None, _) => {
                refused("a space is { shared = 16000 }, { lowrank = 8 } or { lowrank = 8, basis = \"dct\" }")
            }
        }
    }
}

impl From<SpaceSpec> for Raw {
    fn from(spec: SpaceSpec) -> Self {
        let none = Self {
            shared: None,
            lowrank: None,
            basis: None,
        };
        match spec {
            SpaceSpec::Shared(values) => Self {
                shared: Some(values),
                ..none
            },
            SpaceSpec::LowRank { rank, basis } => Self {
                lowrank: Some(rank),
                basis: Some(basis).filter(|basis| *basis != Basis::Random),
                ..none
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_is_read_as_it_is_written() {
        for (text, spec) in [
            (r#"{"shared":16000}"#, SpaceSpec::Shared(16_000)),
            (
                r#"{"lowrank":8}"#,
                SpaceSpec::LowRank {
                    rank: 8,
                    basis: Basis::Random,
                },
            ),
            (
                r#"{"lowrank":8,"basis":"dct"}"#,
                SpaceSpec::LowRank {
                    rank: 8,
                    basis: Basis::Dct,
                },
            ),
        ] {
            assert_eq!(serde_json::from_str::<SpaceSpec>(text).unwrap(), spec);
            assert_eq!(serde_json::to_string(&spec).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_space_is_refused_by_its_key() {
        for (text, part) in [
            ("{}", "a space is { shared = 16000 }"),
            (r#"{"shared":0}"#, "`space.shared` is 0, but must be 1 to"),
            (r#"{"shared":4294967295}"#, "`space.shared` is 4294967295"),
            (r#"{"lowrank":0}"#, "`space.lowrank` is 0"),
            (r#"{"shared":5,"lowrank":2}"#, "not both"),
            (r#"{"shared":5,"basis":"dct"}"#, "`space.basis` belongs to `lowrank`"),
            (r#"{"lowrank":5,"basis":"dft"}"#, "unknown variant `dft`"),
            (r#"{"hashed":5}"#, "unknown field `hashed`"),
            (r#"{"shared":-5}"#, "-5"),
        ] {
            let error = serde_json::from_str::<SpaceSpec>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
