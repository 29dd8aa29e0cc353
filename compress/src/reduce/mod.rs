//! First slot: which values are sent.

#[allow(dead_code)]
mod count_sketch;
#[allow(dead_code)]
mod keyed;
#[allow(dead_code)]
mod low_rank;
#[allow(dead_code)]
mod projection;
#[allow(dead_code)]
mod random_k;
#[cfg(test)]
mod speed;
#[allow(dead_code)]
mod threshold;
#[allow(dead_code)]
mod top_k;

use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;
use crate::layout::Shape;
use crate::spec::choice::{self, Choice};
use crate::wire::{Reader, Writer};

/// What was asked of the first slot.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceSpec {
    /// Every value.
    #[default]
    Keep,
    /// The share of values that are largest in magnitude.
    TopK(Density),
}

impl<'de> Deserialize<'de> for ReduceSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choice::deserialize(deserializer)
    }
}

impl Choice for ReduceSpec {
    const FORMS: &'static str = r#""keep" or { top_k = density }"#;

    fn plain(name: &str) -> Option<Self> {
        (name == "keep").then_some(Self::Keep)
    }

    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "top_k" {
            return Ok(None);
        }
        map.next_value().map(|density| Some(Self::TopK(density)))
    }
}

/// What was done in the first slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reduce {
    /// Every value: no indices.
    Keep,
    /// The values at `k` indices, which are sent too; all others are zero.
    Support {
        /// Number of values kept.
        k: u32,
    },
    /// The values at `k` random places, which the frame's seed gives; all others are zero.
    RandomK {
        /// Number of values kept.
        k: u32,
    },
    /// The product of two factors, and a sparse remainder.
    LowRank {
        /// Columns of each factor.
        rank: u32,
        /// Values of the remainder.
        k: u32,
    },
    /// A table of `rows` signed sums of the values, hashed by the frame's seed. A value is the median of its estimates if
    /// that reaches `threshold` in magnitude, else zero.
    CountSketch {
        /// Independent hashes, odd.
        rows: u32,
        /// Counters of each.
        cols: u32,
        /// Least magnitude decoded.
        threshold: f32,
    },
    /// Random signed sums of each block of values.
    Projection {
        /// Sums for each block.
        k: u32,
    },
}

impl Reduce {
    /// Two bits of a recipe's tag.
    pub(crate) fn tag(&self) -> u8 {
        match self {
            Self::Keep => 0,
            Self::Support { .. } => 1,
            Self::LowRank { .. } => 2,
            Self::RandomK { .. } | Self::CountSketch { .. } | Self::Projection { .. } => 3,
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        match *self {
            Self::Keep => {}
            Self::Support { k } => out.varint(k.into()),
            Self::LowRank { rank, k } => {
                out.varint(rank.into());
                out.varint(k.into());
            }
            Self::RandomK { k } => {
                out.u8(0);
                out.varint(k.into());
            }
            Self::CountSketch { rows, cols, threshold } => {
                out.u8(1);
                out.u8(rows as u8);
                out.varint(cols.into());
                out.u32(threshold.to_bits());
            }
            Self::Projection { k } => {
                out.u8(2);
                out.varint(k.into());
            }
        }
    }

    /// Reads the numbers that follow `tag`, for a tensor of `shape`.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'_>, shape: Shape) -> Result<Self, Error> {
        let upto = |reader: &mut Reader<'_>, most: usize, what: &str| {
            let number = reader.varint(what)?;
            let number = u32::try_from(number).ok().filter(|&number| number as usize <= most);
            number.ok_or_else(|| reader.corrupt(what))
        };
        Ok(match tag {
            0 => Self::Keep,
            1 => Self::Support {
                k: upto(reader, shape.len(), "k")?,
            },
            2 => Self::LowRank {
                rank: upto(reader, shape.rows.min(shape.cols), "rank")?,
                k: upto(reader, shape.len(), "k")?,
            },
            _ => match reader.u8("reduce")? {
                0 => Self::RandomK {
                    k: upto(reader, shape.len(), "k")?,
                },
                1 => {
                    let rows = u32::from(reader.u8("rows of the sketch")?);
                    if rows % 2 == 0 || rows > count_sketch::MAX_ROWS {
                        return Err(reader.corrupt("rows of the sketch"));
                    }
                    let cols = upto(reader, shape.len() / rows as usize, "columns of the sketch")?;
                    let threshold = f32::from_bits(reader.u32("threshold")?);
                    if cols == 0 || !(threshold.is_finite() && threshold.is_sign_positive()) {
                        return Err(reader.corrupt("threshold"));
                    }
                    Self::CountSketch { rows, cols, threshold }
                }
                2 => Self::Projection {
                    k: upto(reader, projection::BLOCK, "k")?,
                },
                _ => return Err(reader.corrupt("reduce")),
            },
        })
    }
}

impl ReduceSpec {
    /// Ascending indices of the values to send; `None` for all.
    pub(crate) fn support(self, values: &[f32]) -> Option<Vec<u32>> {
        match self {
            Self::Keep => None,
            Self::TopK(density) => Some(top_k::top_k(values, density.count(values.len()))),
        }
    }
}

/// Share of values kept, in (0, 1].
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Density(f64);

impl Density {
    /// A density.
    ///
    /// # Errors
    /// `Usage` if `share` is not in (0, 1].
    pub fn new(share: f64) -> Result<Self, Error> {
        if share > 0.0 && share <= 1.0 {
            return Ok(Self(share));
        }
        Err(Error::Usage(format!("a density is above 0 and at most 1, not {share}")))
    }

    /// `ceil(share * len)`, at least one; a product that is whole but for rounding is not rounded up.
    pub(crate) fn count(self, len: usize) -> usize {
        ((self.0 * len as f64 * (1.0 - 1e-12)).ceil() as usize).clamp(1, len.max(1))
    }
}

impl TryFrom<f64> for Density {
    type Error = Error;

    fn try_from(share: f64) -> Result<Self, Error> {
        Self::new(share)
    }
}

impl From<Density> for f64 {
    fn from(density: Density) -> Self {
        density.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_rounds_up_but_not_for_rounding_errors() {
        let count = |share, len| Density::new(share).unwrap().count(len);
        assert_eq!(count(0.07, 100), 7);
        assert_eq!(count(0.01, 10_000_000), 100_000);
        assert_eq!(count(0.01, 101), 2);
        assert_eq!(count(1e-9, 5), 1);
        assert_eq!(count(1.0, 5), 5);
        assert!(
            [0.0, -0.1, 1.1, f64::NAN]
                .into_iter()
                .all(|share| Density::new(share).is_err())
        );
    }
}
