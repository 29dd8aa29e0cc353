//! The interfaces of a quantizer: encoder ([`Quantizer`]), decoder ([`ValuePlane`], [`ValueReader`]) and table entry
//! ([`Entry`]).

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::code::method::Code;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::rng::KeyedRng;
use crate::wire::Reader;

/// A quantizer with its parameters.
pub(crate) trait Quantizer {
    /// The default parameters, if the name may be given without parameters.
    fn without_numbers() -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Appends the planes of `values`, which are finite and not empty. `shape` is the shape of `values`; context coders
    /// use the neighbors in it.
    fn encode(&self, values: &[f32], shape: Shape, code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size;

    /// As [`Quantizer::encode`], and what a decoder will get. `None` if that is known only after decoding, or would take much
    /// memory.
    fn encode_known(
        &self,
        values: &[f32],
        shape: Shape,
        code: Code,
        rng: KeyedRng,
        out: &mut Vec<u8>,
    ) -> (Size, Option<Arc<dyn KnownPlane>>) {
        (self.encode(values, shape, code, rng, out), None)
    }

    /// As [`Quantizer::encode`], and the values that a decoder will get. `None`, with nothing appended, if they are known only
    /// after decoding.
    fn encode_and_decode(
        &self,
        _values: &[f32],
        _shape: Shape,
        _code: Code,
        _rng: KeyedRng,
        _out: &mut Vec<u8>,
    ) -> Option<(Size, Vec<f32>)> {
        None
    }

    /// The parameters that the decoder needs, in the byte that follows the tag of the recipe.
    fn byte(&self) -> u8 {
        0
    }

    /// Estimated bits of a large value after coding, including its share of the scales.
    fn bits(&self) -> f64;

    /// Worst-case bytes of `len` values without entropy coding, including scales.
    fn most_bytes(&self, len: usize) -> usize;
}

/// Size of the quantized values of one part of a section.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Size {
    /// Bytes without entropy coding, including scales.
    pub(crate) plain: u64,
    /// Lower bound of the coded bytes (order-0 entropy), including scales.
    pub(crate) bound: f64,
    /// Coded bytes that were saved to keep to a size; negative if they were added. Without that the plane would have as many
    /// more.
    pub(crate) saved: f64,
}

impl Size {
    /// Of a plane that keeps to no size.
    pub(crate) fn new(plain: u64, bound: f64) -> Self {
        let saved = 0.0;
        Self { plain, bound, saved }
    }
}

/// What a plane decodes to, as its encoder knows it: error feedback then decodes no stream.
pub(crate) trait KnownPlane: Debug + Send + Sync {
    fn open(self: Arc<Self>) -> Box<dyn ValueReader>;
}

/// The values of one part of a section, still encoded.
pub(crate) trait ValuePlane<'a>: Debug {
    fn scale_bytes(&self) -> usize {
        0
    }

    /// Lower bound of the bytes of the scales. `count` and `code` are those with which the plane was read.
    fn scale_bound(&self, _count: usize, _code: Code) -> Result<f64, Error> {
        Ok(self.scale_bytes() as f64)
    }

    /// Lower bound of the bytes of the values. `count` and `code` are those with which the plane was read.
    fn bound(&self, count: usize, code: Code) -> Result<f64, Error>;

    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error>;
}

/// Decodes values in order.
pub(crate) trait ValueReader {
    /// Fills `out` with the next values, which may be infinite or NaN. All calls together may not ask for more values
    /// than the plane has.
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error>;

    /// Succeeds if the plane holds exactly the values that were read.
    fn finish(&self) -> Result<(), Error>;
}

/// A plane of any quantizer.
pub(crate) type AnyPlane<'a> = Box<dyn ValuePlane<'a> + 'a>;

/// What the decoder knows about a plane before reading it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaneContext {
    pub(crate) shape: Shape,
    /// The parameter byte of the recipe, checked against [`Entry::bytes`]; 0 if the entry has none.
    pub(crate) byte: u8,
    pub(crate) code: Code,
    pub(crate) rng: KeyedRng,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) info: MethodInfo,
    /// Three bits of the tag of a recipe. Methods that share a tag differ in the range of `bytes`.
    pub(crate) tag: u8,
    /// Valid values of the byte after the tag; `None` if there is no such byte.
    pub(crate) bytes: Option<RangeInclusive<u8>>,
    /// Describes the parameter byte for reports.
    pub(crate) words: fn(u8) -> String,
    pub(crate) read: for<'a> fn(&mut Reader<'a>, PlaneContext) -> Result<AnyPlane<'a>, Error>,
}
