//! Second slot: with what precision the values are sent.

mod exact;
mod half;
mod uniform;

pub use uniform::{Rounding, Uniform};

use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;
use crate::code::Code;
use crate::layout::Shape;
use crate::rng::Draws;
use crate::spec::choice::{self, Choice};
use crate::wire::{Reader, Writer};

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
    /// The upper half of an IEEE binary32: relative error at most 2^-9.
    Bf16,
    /// Multiples of one step, those of magnitude one replaced by their mean; a wide zero.
    DeadZone,
    /// A power of two with a sign: relative error at most 1/2.
    Natural,
    /// Few bits a value after a random rotation, which the frame's seed gives.
    Rotated {
        /// Width of a symbol, 1 to 4.
        bits: u32,
    },
    /// Minus a scale, zero, or plus that scale.
    Ternary,
    /// Minus or plus one magnitude; or, if `split`, one magnitude for each sign.
    Sign {
        /// Whether the signs have magnitudes of their own.
        split: bool,
    },
}

impl Quantize {
    /// Three bits of a recipe's tag.
    pub(crate) fn tag(&self) -> u8 {
        match self {
            Self::Exact => 0,
            Self::Half => 1,
            Self::Uniform { .. } => 2,
            Self::Bf16 => 3,
            Self::DeadZone => 4,
            Self::Natural => 5,
            Self::Rotated { .. } => 6,
            Self::Ternary | Self::Sign { .. } => 7,
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        match *self {
            Self::Uniform { bits, block } => out.u8((bits - 1) as u8 | ((block.ilog2() - 4) as u8) << 3),
            Self::Rotated { bits } => out.u8((bits - 1) as u8),
            Self::Ternary => out.u8(0),
            Self::Sign { split } => out.u8(1 + u8::from(split)),
            Self::Exact | Self::Half | Self::Bf16 | Self::DeadZone | Self::Natural => {}
        }
    }

    /// Reads the numbers that follow `tag`.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match tag {
            0 => Self::Exact,
            1 => Self::Half,
            2 => {
                let byte = u32::from(reader.u8("bits and block")?);
                if byte >> 3 > 12 {
                    return Err(reader.corrupt("bits and block"));
                }
                Self::Uniform {
                    bits: byte % 8 + 1,
                    block: 16 << (byte >> 3),
                }
            }
            3 => Self::Bf16,
            4 => Self::DeadZone,
            5 => Self::Natural,
            6 => match reader.u8("bits")? {
                bits @ 0..4 => Self::Rotated {
                    bits: u32::from(bits) + 1,
                },
                _ => return Err(reader.corrupt("bits")),
            },
            _ => match reader.u8("quantize")? {
                0 => Self::Ternary,
                1 => Self::Sign { split: false },
                2 => Self::Sign { split: true },
                _ => return Err(reader.corrupt("quantize")),
            },
        })
    }
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
    pub(crate) fn recipe(&self) -> Quantize {
        match *self {
            Self::Exact => Quantize::Exact,
            Self::Half => Quantize::Half,
            Self::Uniform(uniform) => Quantize::Uniform {
                bits: uniform.bits(),
                block: uniform.block(),
            },
        }
    }

    /// Appends the planes of `values`, which are finite.
    /// `shape` is that of `values`, for coders that look at neighbours.
    pub(crate) fn encode(&self, values: &[f32], _shape: Shape, code: Code, draws: Draws, out: &mut Vec<u8>) -> Size {
        match *self {
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
    /// Takes the planes of values of `shape` from the front of `reader`.
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        shape: Shape,
        quantize: Quantize,
        code: Code,
        _draws: Draws,
    ) -> Result<Self, Error> {
        let count = shape.len();
        Ok(match quantize {
            Quantize::Exact => Self::Exact(exact::Plane::read(reader, count, code)?),
            Quantize::Half => Self::Half(half::Plane::read(reader, count, code)?),
            Quantize::Uniform { bits, block } => {
                Self::Uniform(uniform::Plane::read(reader, count, bits, block as usize, code)?)
            }
            _ => return Err(reader.corrupt("quantize")),
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

    /// Bytes that the scales, and the values, could not go below; `count` and `code` are those it was read with.
    pub(crate) fn bounds(&self, count: usize, code: Code) -> Result<(f64, f64), Error> {
        Ok(match self {
            Self::Exact(plane) => (0.0, plane.bound(count, code)?),
            Self::Half(plane) => (1.0, plane.bound(count, code)?),
            Self::Uniform(plane) => plane.bounds(count, code)?,
        })
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
