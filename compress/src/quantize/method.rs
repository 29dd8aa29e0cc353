//! What a quantizer is: for the encoder, for the decoder, and in the table.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use crate::code::method::Code;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::rng::KeyedRng;
use crate::wire::Reader;

/// One way to quantize, with the numbers that a user chose.
pub(crate) trait Quantizer {
    /// The numbers of the name alone, if it may stand alone.
    fn without_numbers() -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Appends the planes of `values`, which are finite and not empty. `shape` is theirs, for coders that use neighbors.
    fn encode(&self, values: &[f32], shape: Shape, code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size;

    /// The numbers that the decoder needs, in the byte that follows the recipe's tag.
    fn byte(&self) -> u8 {
        0
    }

    /// About how many bits one of the largest values takes when it is coded, scales included.
    fn bits(&self) -> f64;

    /// Most bytes of `len` values at their plain width, scales included.
    fn most_bytes(&self, len: usize) -> usize;
}

/// Size of the quantized values of one plane.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Size {
    /// Bytes at their plain width, scales included.
    pub(crate) plain: u64,
    /// Bytes that coding cannot go below.
    pub(crate) bound: f64,
}

/// The values of one part of a section, found but not decoded.
pub(crate) trait ValuePlane<'a>: Debug {
    /// Bytes that are scales rather than values.
    fn scale_bytes(&self) -> usize {
        0
    }

    /// Bytes that the scales cannot go below; `count` and `code` are those that the plane was read with.
    fn scale_bound(&self, _count: usize, _code: Code) -> Result<f64, Error> {
        Ok(self.scale_bytes() as f64)
    }

    /// Bytes that the values cannot go below; `count` and `code` are those that the plane was read with.
    fn bound(&self, count: usize, code: Code) -> Result<f64, Error>;

    /// Decodes from the first value.
    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error>;
}

/// Takes values from the front of a plane.
pub(crate) trait ValueReader {
    /// Fills `out` with the next values, finite or not; in all no more than the plane was read for.
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error>;

    /// Succeeds if the plane held exactly the values that were read.
    fn finish(&self) -> Result<(), Error>;
}

/// A plane of any quantizer.
pub(crate) type AnyPlane<'a> = Box<dyn ValuePlane<'a> + 'a>;

/// What is known of a plane before it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) shape: Shape,
    /// What [`Quantizer::byte`] gave, or would give: in the range of the entry.
    pub(crate) byte: u8,
    pub(crate) code: Code,
    pub(crate) rng: KeyedRng,
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) info: MethodInfo,
    /// Three bits of a recipe's tag. Several methods may share it, each with a range of `bytes`.
    pub(crate) tag: u8,
    /// The byte after the tag, if there is one.
    pub(crate) bytes: Option<RangeInclusive<u8>>,
    /// The minor version of the format that brought the method.
    pub(crate) minor: u8,
    /// The recipe in words.
    pub(crate) words: fn(u8) -> String,
    /// Takes the planes from the front of the bytes.
    pub(crate) read: for<'a> fn(&mut Reader<'a>, Expected) -> Result<AnyPlane<'a>, Error>,
}
