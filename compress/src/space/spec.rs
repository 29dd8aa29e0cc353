//! The `space` of a `[train]` table: which part of a model is trained.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Which combinations of a model's values are trained. Every number is at least 1.
///
/// `{ shared = 16000 }`, `{ shared = 8000, blocks = 8 }`, `{ lowrank = 8 }` or `{ lowrank = 8, basis = "dct" }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub enum SpaceSpec {
    /// Each value is shared by a seeded group of weights of one tensor, with a seeded sign for each weight.
    Shared {
        /// Values that a round trains.
        values: u32,
        /// Blocks of so many values, each with groups and signs of its own: a round trains one of them, in turn. At most
        /// [`SpaceSpec::MOST_BLOCKS`].
        blocks: u32,
    },
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
    /// Most blocks of a space.
    pub const MOST_BLOCKS: u32 = 64;

    /// `values` shared values in one block, which every round trains.
    pub fn shared(values: u32) -> Self {
        Self::Shared { values, blocks: 1 }
    }

    /// Blocks that the rounds train in turn.
    pub fn blocks(self) -> u32 {
        match self {
            Self::Shared { blocks, .. } => blocks,
            Self::LowRank { .. } => 1,
        }
    }

    /// The same if every number is in range.
    ///
    /// # Errors
    /// `Usage`, naming the key and its range.
    pub fn checked(self) -> Result<Self, Error> {
        let (key, number) = match self {
            Self::Shared { values, .. } => ("shared", values),
            Self::LowRank { rank, .. } => ("lowrank", rank),
        };
        for (key, number, most) in [(key, number, MOST), ("blocks", self.blocks(), Self::MOST_BLOCKS)] {
            if !(1..=most).contains(&number) {
                return Err(Error::Usage(format!(
                    "`space.{key}` is {number}, but must be 1 to {most}"
                )));
            }
        }
        Ok(self)
    }
}

// Most values: the number of one and a sign fit a `u32`.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u32>,
}

impl TryFrom<Raw> for SpaceSpec {
    type Error = Error;

    fn try_from(raw: Raw) -> Result<Self, Error> {
        let refused = |why: &str| Err(Error::Usage(why.to_owned()));
        match raw {
            Raw {
                shared: Some(_),
                lowrank: Some(_),
                ..
            } => refused("give one of `space.shared` and `space.lowrank`, not both"),
            Raw {
                shared: Some(_),
                basis: Some(_),
                ..
            } => refused("`space.basis` belongs to `lowrank`, not to `shared`; remove it"),
            Raw {
                lowrank: Some(_),
                blocks: Some(_),
                ..
            } => refused("`space.blocks` belongs to `shared`, not to `lowrank`; remove it"),
            Raw {
                shared: Some(values),
                blocks,
                ..
            } => {
                let blocks = blocks.unwrap_or(1);
                Self::Shared { values, blocks }.checked()
            }
            Raw {
                lowrank: Some(rank),
                basis,
                ..
            } => {
                let basis = basis.unwrap_or_default();
                Self::LowRank { rank, basis }.checked()
            }
            _ => refused(
                "a space is { shared = 16000 }, { shared = 8000, blocks = 8 }, { lowrank = 8 } or { lowrank = 8, basis = \"dct\" }",
            ),
        }
    }
}

impl From<SpaceSpec> for Raw {
    fn from(spec: SpaceSpec) -> Self {
        let none = Self {
            shared: None,
            lowrank: None,
            basis: None,
            blocks: None,
        };
        match spec {
            SpaceSpec::Shared { values, blocks } => Self {
                shared: Some(values),
                blocks: Some(blocks).filter(|blocks| *blocks != 1),
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
            (r#"{"shared":16000}"#, SpaceSpec::shared(16_000)),
            (
                r#"{"shared":8000,"blocks":8}"#,
                SpaceSpec::Shared {
                    values: 8000,
                    blocks: 8,
                },
            ),
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
            (r#"{"shared":5,"blocks":0}"#, "`space.blocks` is 0, but must be 1 to 64"),
            (
                r#"{"shared":5,"blocks":65}"#,
                "`space.blocks` is 65, but must be 1 to 64",
            ),
            (r#"{"lowrank":5,"blocks":2}"#, "`space.blocks` belongs to `shared`"),
            (r#"{"lowrank":5,"basis":"dft"}"#, "unknown variant `dft`"),
            (r#"{"hashed":5}"#, "unknown field `hashed`"),
            (r#"{"shared":-5}"#, "-5"),
        ] {
            let error = serde_json::from_str::<SpaceSpec>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
