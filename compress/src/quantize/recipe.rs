//! What was done in the second slot, as a decoder reads it.

use crate::error::Error;
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
