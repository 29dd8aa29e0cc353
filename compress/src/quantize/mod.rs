//! Second slot: with what precision the values are sent.

mod bf16;
mod dead_zone;
mod exact;
mod half;
#[cfg(test)]
mod laws;
mod natural;
mod rotated;
mod sign;
mod spec;
mod ternary;
mod uniform;

pub(crate) use dead_zone::Histogram;
#[cfg(feature = "internals")]
pub(crate) use dead_zone::nearest as dead_zone_levels;
pub use dead_zone::{DeadZone, Step};
#[cfg(feature = "internals")]
pub(crate) use rotated::hadamard;
pub use rotated::{Rotated, Scale};
pub use sign::Sign;
pub use spec::QuantizeSpec;
pub use ternary::Ternary;
pub use uniform::{Norm, Rounding, Uniform};

use crate::Error;
use crate::code::Code;
use crate::layout::Shape;
use crate::rng::Draws;
use crate::wire::{Reader, Writer};

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
    /// The upper half of an IEEE binary32: relative error at most 2^-8.
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
    /// Appends the planes of `values`, which are finite.
    /// `shape` is that of `values`, for coders that look at neighbours.
    pub(crate) fn encode(&self, values: &[f32], shape: Shape, code: Code, draws: Draws, out: &mut Vec<u8>) -> Size {
        match *self {
            Self::Exact => exact::encode(values, code, out),
            Self::Half => half::encode(values, code, out),
            Self::Bf16 => bf16::encode(values, code, out),
            Self::Uniform(uniform) => uniform.encode(values, code, draws, out),
            Self::DeadZone(dead_zone) => dead_zone.encode(values, shape, code, draws, out),
            Self::Natural => natural::encode(values, code, draws, out),
            Self::Rotated(rotated) => rotated.encode(values, code, draws, out),
            Self::Ternary(ternary) => ternary.encode(values, code, draws, out),
            Self::Sign(sign) => sign::encode(sign, values, code, out),
        }
    }
}

/// The values of a section, not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ValuePlane<'a> {
    Exact(exact::Plane<'a>),
    Half(half::Plane<'a>),
    Bf16(bf16::Plane<'a>),
    Uniform(uniform::Plane<'a>),
    DeadZone(dead_zone::Plane<'a>),
    Natural(natural::Plane<'a>),
    Rotated(rotated::Plane<'a>),
    Ternary(ternary::Plane<'a>),
    Sign(sign::Plane<'a>),
}

impl<'a> ValuePlane<'a> {
    /// Takes the planes of values of `shape` from the front of `reader`.
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        shape: Shape,
        quantize: Quantize,
        code: Code,
        draws: Draws,
    ) -> Result<Self, Error> {
        let count = shape.len();
        Ok(match quantize {
            Quantize::Exact => Self::Exact(exact::Plane::read(reader, count, code)?),
            Quantize::Half => Self::Half(half::Plane::read(reader, count, code)?),
            Quantize::Bf16 => Self::Bf16(bf16::Plane::read(reader, count, code)?),
            Quantize::Uniform { bits, block } => {
                Self::Uniform(uniform::Plane::read(reader, count, bits, block as usize, code)?)
            }
            Quantize::DeadZone => Self::DeadZone(dead_zone::Plane::read(reader, shape, code)?),
            Quantize::Natural => Self::Natural(natural::Plane::read(reader, count, code)?),
            Quantize::Rotated { bits } => Self::Rotated(rotated::Plane::read(reader, count, bits, code, draws)?),
            Quantize::Ternary => Self::Ternary(ternary::Plane::read(reader, count, code)?),
            Quantize::Sign { split } => Self::Sign(sign::Plane::read(reader, count, split, code)?),
        })
    }

    /// Bytes that are scales rather than values.
    pub(crate) fn scale_bytes(&self) -> usize {
        match self {
            Self::Exact(_) | Self::Bf16(_) => 0,
            Self::Half(_) => 1,
            Self::Natural(_) => 2,
            Self::Ternary(_) => 4,
            Self::DeadZone(_) => 8,
            Self::Sign(plane) => plane.scale_bytes(),
            Self::Uniform(plane) => plane.scale_bytes(),
            Self::Rotated(plane) => plane.scale_bytes(),
        }
    }

    /// Bytes that the scales could not go below; `count` and `code` are those it was read with.
    pub(crate) fn scale_bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        match self {
            Self::Uniform(plane) => plane.scale_bound(count, code),
            _ => Ok(self.scale_bytes() as f64),
        }
    }

    /// Bytes that the values could not go below; `count` and `code` are those it was read with.
    pub(crate) fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        match self {
            Self::Exact(plane) => plane.bound(count, code),
            Self::Half(plane) => plane.bound(count, code),
            Self::Bf16(plane) => plane.bound(count, code),
            Self::Uniform(plane) => plane.bound(count, code),
            Self::DeadZone(plane) => plane.bound(count),
            Self::Natural(plane) => plane.bound(count, code),
            Self::Rotated(plane) => plane.bound(code),
            Self::Ternary(plane) => plane.bound(count, code),
            Self::Sign(plane) => plane.bound(count, code),
        }
    }

    pub(crate) fn open(&self) -> Result<Values<'a>, Error> {
        Ok(match self {
            Self::Exact(plane) => Values::Exact(plane.open()?),
            Self::Half(plane) => Values::Half(plane.open()?),
            Self::Bf16(plane) => Values::Bf16(plane.open()?),
            Self::Uniform(plane) => Values::Uniform(Box::new(plane.open()?)),
            Self::DeadZone(plane) => Values::DeadZone(Box::new(plane.open()?)),
            Self::Natural(plane) => Values::Natural(Box::new(plane.open()?)),
            Self::Rotated(plane) => Values::Rotated(Box::new(plane.open()?)),
            Self::Ternary(plane) => Values::Ternary(plane.open()?),
            Self::Sign(plane) => Values::Sign(plane.open()?),
        })
    }
}

/// Takes values from the front of a section's planes.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    Exact(exact::Values<'a>),
    Half(half::Values<'a>),
    Bf16(bf16::Values<'a>),
    Uniform(Box<uniform::Values<'a>>),
    DeadZone(Box<dead_zone::Values<'a>>),
    Natural(Box<natural::Values<'a>>),
    Rotated(Box<rotated::Values<'a>>),
    Ternary(ternary::Values<'a>),
    Sign(sign::Values<'a>),
}

impl Values<'_> {
    /// Fills `out` with the next values, finite or not; in all no more than were read for.
    pub(crate) fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        match self {
            Self::Exact(values) => values.read(out),
            Self::Half(values) => values.read(out),
            Self::Bf16(values) => values.read(out),
            Self::Uniform(values) => return values.read(out),
            Self::DeadZone(values) => return values.read(out),
            Self::Natural(values) => values.read(out),
            Self::Rotated(values) => values.read(out),
            Self::Ternary(values) => return values.read(out),
            Self::Sign(values) => values.read(out),
        }
        Ok(())
    }

    /// Succeeds if the planes held exactly the values that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        match self {
            Self::Exact(values) => values.finish(),
            Self::Half(values) => values.finish(),
            Self::Bf16(values) => values.finish(),
            Self::Uniform(values) => values.finish(),
            Self::DeadZone(values) => values.finish(),
            Self::Natural(values) => values.finish(),
            Self::Rotated(values) => values.finish(),
            Self::Ternary(values) => values.finish(),
            Self::Sign(values) => values.finish(),
        }
    }
}

/// A scale as binary32: finite, and its sign plus.
fn read_scale(reader: &mut Reader<'_>, what: &str) -> Result<f32, Error> {
    let scale = f32::from_bits(reader.u32(what)?);
    if !scale.is_finite() {
        return Err(Error::NotFinite(what.to_owned()));
    }
    if scale.is_sign_negative() {
        return Err(reader.corrupt(what));
    }
    Ok(scale)
}

/// The root of the mean square of `values`, summed in `f64` in a fixed order.
fn root_mean_square(values: &[f32]) -> f64 {
    (sum_of_squares(values) / values.len().max(1) as f64).sqrt()
}

#[inline(never)]
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (groups, rest) = values.as_chunks::<8>();
    for group in groups {
        for (sum, &value) in sums.iter_mut().zip(group) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>()
}

/// Largest magnitude among `values`, which are not NaN.
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(
        values
            .iter()
            .fold(0, |largest, value| (value.to_bits() & 0x7fff_ffff).max(largest)),
    )
}
