//! Second slot: with what precision the values are sent.

mod exact;
mod half;
mod uniform;

pub use uniform::{Rounding, Uniform};

use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;
use crate::code::Code;
use crate::rng::Draws;
use crate::spec::choice::{self, Choice};
use crate::wire::Reader;

/// What was asked of the second slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuantizeSpec {
    /// All 32 bits.
    #[default]
    Exact,
    /// 16 bits.
    Half,
    /// Few bits, with a scale for each block of values.
    Uniform(Uniform),
}

impl<'de> Deserialize<'de> for QuantizeSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choice::deserialize(deserializer)
    }
}

impl Choice for QuantizeSpec {
    const FORMS: &'static str = r#""exact", "half" or { uniform = bits }"#;

    fn plain(name: &str) -> Option<Self> {
        match name {
            "exact" => Some(Self::Exact),
            "half" => Some(Self::Half),
            _ => None,
        }
    }

    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "uniform" {
            return Ok(None);
        }
        map.next_value().map(|uniform| Some(Self::Uniform(uniform)))
    }
}

/// What was done in the second slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantize {
    /// IEEE binary32, bit for bit.
    Exact,
    /// IEEE binary16 times one power of two for the tensor, so that the largest value is far from both ends of the range:
    /// relative error at most 2^-11 down to 2^-29 of the largest magnitude.
    Half,
    /// `2^bits - 1` levels from minus to plus the scale of the block (two levels, without a zero, for one bit).
    Uniform {
        /// Width of a symbol, 1 to 8.
        bits: u32,
        /// Values to a scale, a power of two from 16 to 65536.
        block: u32,
    },
}

/// Size of one tensor's quantised values.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Size {
    /// Bytes at their plain width, scales included.
    pub(crate) plain: u64,
    /// Bytes that coding could not go below.
    pub(crate) bound: f64,
}

impl QuantizeSpec {
    pub(crate) fn recipe(self) -> Quantize {
        match self {
            Self::Exact => Quantize::Exact,
            Self::Half => Quantize::Half,
            Self::Uniform(uniform) => Quantize::Uniform {
                bits: uniform.bits(),
                block: uniform.block(),
            },
        }
    }

    /// Appends the planes of `values`, which are finite.
    pub(crate) fn encode(self, values: &[f32], code: Code, draws: Draws, out: &mut Vec<u8>) -> Size {
        match self {
            Self::Exact => exact::encode(values, code, out),
            Self::Half => half::encode(values, code, out),
            Self::Uniform(uniform) => uniform.encode(values, code, draws, out),
        }
    }
}

/// The values of a section, not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ValuePlane<'a> {
    Exact(exact::Plane<'a>),
    Half(half::Plane<'a>),
    Uniform(uniform::Plane<'a>),
}

impl<'a> ValuePlane<'a> {
    /// Takes the planes of `count` values from the front of `reader`.
    pub(crate) fn read(reader: &mut Reader<'a>, count: usize, quantize: Quantize, code: Code) -> Result<Self, Error> {
        Ok(match quantize {
            Quantize::Exact => Self::Exact(exact::Plane::read(reader, count, code)?),
            Quantize::Half => Self::Half(half::Plane::read(reader, count, code)?),
            Quantize::Uniform { bits, block } => {
                Self::Uniform(uniform::Plane::read(reader, count, bits, block as usize, code)?)
            }
        })
    }

    /// Bytes that are scales rather than values.
    pub(crate) fn scale_bytes(&self) -> usize {
        match self {
            Self::Exact(_) => 0,
            Self::Half(_) => 1,
            Self::Uniform(plane) => plane.scale_bytes(),
        }
    }

    pub(crate) fn open(&self) -> Result<Values<'a>, Error> {
        Ok(match self {
            Self::Exact(plane) => Values::Exact(plane.open()?),
            Self::Half(plane) => Values::Half(plane.open()?),
            Self::Uniform(plane) => Values::Uniform(Box::new(plane.open()?)),
        })
    }
}

/// Takes values from the front of a section's planes.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    Exact(exact::Values<'a>),
    Half(half::Values<'a>),
    Uniform(Box<uniform::Values<'a>>),
}

impl Values<'_> {
    /// Fills `out` with the next values, finite or not; in all no more than were read for.
    pub(crate) fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        match self {
            Self::Exact(values) => values.read(out),
            Self::Half(values) => values.read(out),
            Self::Uniform(values) => return values.read(out),
        }
        Ok(())
    }

    /// Succeeds if the planes held exactly the values that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        match self {
            Self::Exact(values) => values.finish(),
            Self::Half(values) => values.finish(),
            Self::Uniform(values) => values.finish(),
        }
    }
}

/// Largest magnitude among `values`, which are not NaN.
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(
        values
            .iter()
            .fold(0, |largest, value| (value.to_bits() & 0x7fff_ffff).max(largest)),
    )
}
