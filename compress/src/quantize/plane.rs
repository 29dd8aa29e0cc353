//! From values to the planes of a section, and back.

use crate::code::method::Code;
use crate::error::Error;
use crate::layout::Shape;
use crate::quantize::numbers::Size;
use crate::quantize::recipe::Quantize;
use crate::quantize::spec::QuantizeSpec;
use crate::quantize::{bf16, dead_zone, exact, half, natural, rotated, sign, ternary, uniform};
use crate::rng::Draws;
use crate::wire::Reader;

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
    Uniform(uniform::decode::Plane<'a>),
    DeadZone(dead_zone::decode::Plane<'a>),
    Natural(natural::Plane<'a>),
    Rotated(rotated::decode::Plane<'a>),
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
                Self::Uniform(uniform::decode::Plane::read(reader, count, bits, block as usize, code)?)
            }
            Quantize::DeadZone => Self::DeadZone(dead_zone::decode::Plane::read(reader, shape, code)?),
            Quantize::Natural => Self::Natural(natural::Plane::read(reader, count, code)?),
            Quantize::Rotated { bits } => {
                Self::Rotated(rotated::decode::Plane::read(reader, count, bits, code, draws)?)
            }
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
    Uniform(Box<uniform::decode::Values<'a>>),
    DeadZone(Box<dead_zone::decode::Values<'a>>),
    Natural(Box<natural::Values<'a>>),
    Rotated(Box<rotated::decode::Values<'a>>),
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
