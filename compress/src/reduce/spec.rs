//! The numbers of each choice of the first slot, as asked.

use serde::{Deserialize, Serialize};

use crate::density::Density;
use crate::error::Error;
use crate::forms::short::{Short, short_forms};
use crate::reduce::count_sketch;
use crate::rules::density::DensitySpec;
use crate::rules::rank::{MAX_RANK, RankSpec};

short_forms!(TopK, RandomK, Threshold, LowRank, CountSketch, Projection);

fn number_of(density: &DensitySpec) -> Option<f64> {
    match density {
        DensitySpec::Fixed(density) => Some((*density).into()),
        _ => None,
    }
}

/// The largest magnitudes: `0.01` or `{ density = 0.01, chunk = 4096 }`.
#[derive(Debug, Clone, PartialEq)]
pub struct TopK {
    /// Share of values kept, or a rule that chooses it.
    pub density: DensitySpec,
    /// Values among which the largest are looked for; by default the whole tensor.
    pub chunk: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopKTable {
    density: DensitySpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk: Option<u32>,
}

impl From<Density> for TopK {
    fn from(density: Density) -> Self {
        Self {
            density: DensitySpec::Fixed(density),
            chunk: None,
        }
    }
}

impl Short for TopK {
    const FORMS: &'static str = "a density above 0 and at most 1, or { density = .., chunk = .. }";
    type Table = TopKTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        Density::new(number).map(Self::from)
    }

    fn from_table(TopKTable { density, chunk }: TopKTable) -> Result<Self, Error> {
        if chunk == Some(0) {
            return Err(Error::Usage("a chunk has at least one value".to_owned()));
        }
        Ok(Self { density, chunk })
    }

    fn parts(&self) -> Result<f64, TopKTable> {
        let number = number_of(&self.density).filter(|_| self.chunk.is_none());
        number.ok_or_else(|| TopKTable {
            density: self.density.clone(),
            chunk: self.chunk,
        })
    }
}

/// Random places, which the seed gives: `0.01`. Without memory the values are scaled up, so that the expectation is the
/// update itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomK {
    /// Share of values sent.
    pub density: Density,
}

/// A table of a density alone.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DensityTable {
    density: Density,
}

impl Short for RandomK {
    const FORMS: &'static str = "a density above 0 and at most 1";
    type Table = DensityTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        Density::new(number).map(|density| Self { density })
    }

    fn from_table(DensityTable { density }: DensityTable) -> Result<Self, Error> {
        Ok(Self { density })
    }

    fn parts(&self) -> Result<f64, DensityTable> {
        Ok(self.density.into())
    }
}

/// Random signed sums of blocks: a density, the share of sums to values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Projection {
    /// Sums for each value; more than 0.25 counts as that.
    pub density: Density,
}

impl Short for Projection {
    const FORMS: &'static str = "a density above 0 and at most 0.25";
    type Table = DensityTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        if number > 0.25 {
            return Err(Error::Usage(format!(
                "a projection takes as many operations a value as a block has sums: its density is at most 0.25, not {number}"
            )));
        }
        Density::new(number).map(|density| Self { density })
    }

    fn from_table(DensityTable { density }: DensityTable) -> Result<Self, Error> {
        Self::from_number(density.into())
    }

    fn parts(&self) -> Result<f64, DensityTable> {
        Ok(self.density.into())
    }
}

/// A magnitude to reach: `0.001`, or `{ sampled = 0.01 }`, the magnitude that about this share reaches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// The magnitude itself.
    Fixed(f32),
    /// Found from a sample.
    Sampled(Density),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThresholdTable {
    sampled: Density,
}

impl Short for Threshold {
    const FORMS: &'static str = "a magnitude above 0, or { sampled = density }";
    type Table = ThresholdTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        let threshold = number as f32;
        if threshold > 0.0 && threshold.is_finite() {
            return Ok(Self::Fixed(threshold));
        }
        Err(Error::Usage(format!(
            "a threshold is a magnitude above 0, not {number}"
        )))
    }

    fn from_table(ThresholdTable { sampled }: ThresholdTable) -> Result<Self, Error> {
        Ok(Self::Sampled(sampled))
    }

    fn parts(&self) -> Result<f64, ThresholdTable> {
        match *self {
            // The shortest decimal that is this f32, not the f64 it widens to.
            Self::Fixed(threshold) => Ok(threshold.to_string().parse().unwrap_or(f64::from(threshold))),
            Self::Sampled(sampled) => Err(ThresholdTable { sampled }),
        }
    }
}

/// Two factors: `4` or `{ rank = 4, remainder = 0.001 }`.
#[derive(Debug, Clone, PartialEq)]
pub struct LowRank {
    /// Columns of each factor, or a rule that chooses them. Where the factors hold no fewer values than the tensor, it is
    /// sent whole.
    pub rank: RankSpec,
    /// Share of values of what the factors leave that is sent too, the largest.
    pub remainder: Option<Density>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LowRankTable {
    rank: RankSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    remainder: Option<Density>,
}

impl Short for LowRank {
    const FORMS: &'static str = "a rank of 1 to 1024, or { rank = .., remainder = density }";
    type Table = LowRankTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        if number.fract() != 0.0 || !(1.0..=f64::from(MAX_RANK)).contains(&number) {
            return Err(Error::Usage(format!("a rank is 1 to 1024, not {number}")));
        }
        Ok(Self {
            rank: RankSpec::Fixed(number as u32),
            remainder: None,
        })
    }

    fn from_table(LowRankTable { rank, remainder }: LowRankTable) -> Result<Self, Error> {
        Ok(Self { rank, remainder })
    }

    fn parts(&self) -> Result<f64, LowRankTable> {
        match (&self.rank, self.remainder) {
            (RankSpec::Fixed(rank), None) => Ok(f64::from(*rank)),
            _ => Err(LowRankTable {
                rank: self.rank.clone(),
                remainder: self.remainder,
            }),
        }
    }
}

/// Signed sums under several hashes: `0.1` or `{ density = 0.1, rows = 5, top = 0.01 }`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CountSketch {
    /// Independent hashes, odd, 1 to 15; by default 5.
    pub rows: u32,
    /// Size of the table, as a share of the values.
    pub density: Density,
    /// Share of values decoded, the largest estimates; by default a tenth of `density`.
    pub top: Density,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountSketchTable {
    density: Density,
    rows: Option<u32>,
    top: Option<Density>,
}

impl Short for CountSketch {
    const FORMS: &'static str = "a density above 0 and at most 1, or { density = .., rows = .., top = .. }";
    type Table = CountSketchTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        Self::from_table(CountSketchTable {
            density: Density::new(number)?,
            rows: None,
            top: None,
        })
    }

    fn from_table(CountSketchTable { density, rows, top }: CountSketchTable) -> Result<Self, Error> {
        let rows = rows.unwrap_or(5);
        if rows % 2 == 0 || rows > count_sketch::MAX_ROWS {
            return Err(Error::Usage(format!(
                "a sketch has an odd number of rows, 1 to 15, not {rows}"
            )));
        }
        let top = match top {
            Some(top) => top,
            None => Density::new(f64::from(density) / 10.0)?,
        };
        Ok(Self { rows, density, top })
    }

    fn parts(&self) -> Result<f64, CountSketchTable> {
        let short = Self::from_number(self.density.into());
        if short.as_ref() == Ok(self) {
            return Ok(self.density.into());
        }
        Err(CountSketchTable {
            density: self.density,
            rows: Some(self.rows),
            top: Some(self.top),
        })
    }
}
