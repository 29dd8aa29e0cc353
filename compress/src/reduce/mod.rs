//! First slot: which values are sent.

pub(crate) mod components;
pub(crate) mod count_sketch;
pub(crate) mod keyed;
pub(crate) mod low_rank;
pub(crate) mod projection;
pub(crate) mod random_k;
pub(crate) mod spec;
pub(crate) mod threshold;
pub(crate) mod top_k;

use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize};

use crate::density::Density;
use crate::error::Error;
use crate::forms::choice::{self, Choice};
use crate::layout::Shape;
use crate::reduce::spec::{CountSketch, LowRank, Projection, RandomK, Threshold, TopK};
use crate::rules::rank::MAX_RANK;
use crate::rules::rule_state::RuleState;
use crate::rules::selection::{Selected, Selection};
use crate::wire::{Reader, Writer};

/// What was asked of the first slot.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceSpec {
    /// Every value.
    #[default]
    Keep,
    /// Every value; and of a matrix with a dead zone, as many singular components apart from the rest as pay for themselves.
    Auto,
    /// The values largest in magnitude.
    TopK(TopK),
    /// Values at random places.
    RandomK(RandomK),
    /// The values that reach a magnitude.
    Threshold(Threshold),
    /// Two factors of a matrix, and perhaps the largest values of what they leave.
    LowRank(LowRank),
    /// Signed sums under several hashes.
    CountSketch(CountSketch),
    /// Random signed sums of blocks.
    Projection(Projection),
}

impl<'de> Deserialize<'de> for ReduceSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choice::deserialize(deserializer)
    }
}

impl Choice for ReduceSpec {
    fn forms() -> String {
        r#""keep", "auto" or one of { top_k, random_k, threshold, low_rank, count_sketch, projection = .. }"#.to_owned()
    }

    fn plain(name: &str) -> Option<Self> {
        match name {
            "keep" => Some(Self::Keep),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }

    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(Some(match name {
            "top_k" => Self::TopK(map.next_value()?),
            "random_k" => Self::RandomK(map.next_value()?),
            "threshold" => Self::Threshold(map.next_value()?),
            "low_rank" => Self::LowRank(map.next_value()?),
            "count_sketch" => Self::CountSketch(map.next_value()?),
            "projection" => Self::Projection(map.next_value()?),
            _ => return Ok(None),
        }))
    }
}

/// What is to be sent of one tensor: what was asked, its numbers chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reduction {
    /// Every value.
    All,
    /// Every value, singular components apart if they pay.
    Components,
    /// The `k` largest.
    Largest(usize),
    /// A share of each chunk, the largest.
    LargestOfChunks { density: Density, chunk: usize },
    /// Those that reach `threshold`, and at least the `least` largest.
    Reaching { threshold: f32, least: usize },
    /// About the `k` largest.
    Sampled(usize),
    /// `k` at random, each times `scale`.
    Random { k: usize, scale: f32 },
    /// Factors of `rank` columns and the `k` largest values of what they leave.
    LowRank { rank: usize, k: usize },
    /// A table of `rows` by `cols`, of whose estimates the `k` largest are decoded.
    Sketch { rows: u32, cols: usize, k: usize },
    /// `k` sums of each whole block.
    Projected { k: usize },
}

impl ReduceSpec {
    /// Chooses the numbers for a tensor of `shape`, and the magnitude at which its values are cut off. `unbiased`: no
    /// memory will make good for what is not sent.
    pub(crate) fn select(
        &self,
        values: &[f32],
        shape: Shape,
        round: u64,
        unbiased: bool,
        rule_state: &mut RuleState,
    ) -> (Reduction, Option<f32>) {
        let len = values.len();
        let selection = match self {
            Self::Keep => Reduction::All,
            Self::Auto => Reduction::Components,
            Self::TopK(TopK { density, chunk }) => {
                let Selected { chosen, clip } = density.choose(values, round, rule_state);
                let selection = match (chosen, chunk) {
                    (Selection::Count(k), Some(chunk)) => Reduction::LargestOfChunks {
                        density: Density::of(k, len),
                        chunk: *chunk as usize,
                    },
                    (Selection::Count(k), None) => Reduction::Largest(k),
                    (Selection::Reaching { threshold, least }, _) => Reduction::Reaching { threshold, least },
                };
                return (selection, clip);
            }
            Self::RandomK(RandomK { density }) => {
                let k = density.count(len);
                let scale = if unbiased { len as f32 / k as f32 } else { 1.0 };
                Reduction::Random { k, scale }
            }
            Self::Threshold(Threshold::Fixed(threshold)) => Reduction::Reaching {
                threshold: *threshold,
                least: 0,
            },
            Self::Threshold(Threshold::Sampled(density)) => Reduction::Sampled(density.count(len)),
            Self::LowRank(LowRank { rank, remainder }) => {
                let rank = (rank.at(round) as usize).min(shape.rows).min(shape.cols);
                if !low_rank::pays(shape, rank) {
                    return (Reduction::All, None);
                }
                let k = remainder.map_or(0, |density| density.count(len));
                Reduction::LowRank { rank, k }
            }
            Self::CountSketch(CountSketch { rows, density, top }) => {
                let cols = density.count(len) / *rows as usize;
                match cols {
                    0 => Reduction::All,
                    _ => Reduction::Sketch {
                        rows: *rows,
                        cols,
                        k: top.count(len),
                    },
                }
            }
            Self::Projection(Projection { density }) => Reduction::Projected {
                k: density.count(projection::BLOCK).min(projection::MOST),
            },
        };
        (selection, None)
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
    /// Singular components, each half with the singular value in it, and the values that they leave.
    Components {
        /// Number of components.
        rank: u32,
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
            Self::RandomK { .. } | Self::CountSketch { .. } | Self::Projection { .. } | Self::Components { .. } => 3,
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
            Self::Components { rank } => {
                out.u8(3);
                out.varint(rank.into());
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
        // A plane of equal symbols takes no bytes, so the work must be bounded by itself.
        let rank = |reader: &mut Reader<'_>| {
            let rank = upto(reader, MAX_RANK as usize, "rank")?;
            let pays = low_rank::pays(shape, rank as usize);
            pays.then_some(rank).ok_or_else(|| reader.corrupt("rank"))
        };
        Ok(match tag {
            0 => Self::Keep,
            1 => Self::Support {
                k: upto(reader, shape.len(), "k")?,
            },
            2 => Self::LowRank {
                rank: rank(reader)?,
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
                2 => match upto(reader, projection::MOST, "k")? {
                    0 => return Err(reader.corrupt("k")),
                    k => Self::Projection { k },
                },
                3 => Self::Components { rank: rank(reader)? },
                _ => return Err(reader.corrupt("reduce")),
            },
        })
    }
}
