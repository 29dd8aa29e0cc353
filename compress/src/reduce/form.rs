//! What a reducer leaves of a tensor: a tag, numbers, and planes. For the decoder and, before the planes are quantized, for
//! the encoder.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::code::method::Code;
use crate::error::Error;
use crate::finite::all_finite;
use crate::layout::Shape;
use crate::quantize::method::{KnownPlane, Size};
use crate::reduce::planes::Planes;
use crate::sink::Sink;
use crate::threads::both;
use crate::wire::{Reader, Writer};

/// The numbers of a form in their order; those that it does not have are 0.
pub(crate) type Numbers = [u32; 4];

pub(crate) struct Form {
    /// Two bits of a recipe's tag.
    pub(crate) tag: u8,
    /// The byte after the tag, for forms that share it.
    pub(crate) second: Option<u8>,
    pub(crate) numbers: &'static [Number],
    /// The form in words, for a tensor of so many values.
    pub(crate) words: fn(Numbers, usize) -> String,
    /// The planes of a tensor of a shape; those without a value are not sent.
    pub(crate) parts: fn(Numbers, Shape) -> Vec<Part>,
    /// Hands the decoded values to the sink, block by block and each finite. At least one plane has values.
    pub(crate) decode: fn(Numbers, &Planes<'_>, &mut dyn Sink) -> Result<(), Error>,
}

impl Form {
    /// What distinguishes it on the wire.
    pub(crate) fn id(&self) -> (u8, Option<u8>) {
        (self.tag, self.second)
    }
}

/// A number that follows the tag.
pub(crate) struct Number {
    pub(crate) name: &'static str,
    width: Width,
    /// Whether the number is possible after those before it, for a tensor of a shape. This must bound what is allocated, and
    /// the work: a plane of equal symbols takes no bytes.
    fits: fn(u32, Numbers, Shape) -> bool,
}

pub(crate) enum Width {
    Byte,
    Varint,
    Word,
}

// Number of values sent.
pub(crate) const K: Number = Number::new("k", Width::Varint, |k, _, shape| k as usize <= shape.len());

impl Number {
    pub(crate) const fn new(name: &'static str, width: Width, fits: fn(u32, Numbers, Shape) -> bool) -> Self {
        Self { name, width, fits }
    }

    pub(crate) fn write(&self, number: u32, out: &mut Writer<'_>) {
        match self.width {
            Width::Byte => out.u8(number as u8),
            Width::Varint => out.varint(number.into()),
            Width::Word => out.u32(number),
        }
    }

    pub(crate) fn read(&self, before: Numbers, reader: &mut Reader<'_>, shape: Shape) -> Result<u32, Error> {
        let number = match self.width {
            Width::Byte => reader.u8(self.name)?.into(),
            Width::Varint => reader.varint(self.name)?,
            Width::Word => reader.u32(self.name)?.into(),
        };
        let number = u32::try_from(number).ok();
        number
            .filter(|&number| (self.fits)(number, before, shape))
            .ok_or_else(|| reader.corrupt(self.name))
    }
}

/// One part of a section: a plane of values, and before it a plane of indices if the places are not known otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    /// Whether its places are sent.
    pub(crate) indexed: bool,
    pub(crate) shape: Shape,
}

impl Part {
    pub(crate) fn plain(rows: usize, cols: usize) -> Self {
        Self {
            indexed: false,
            shape: Shape { rows, cols },
        }
    }

    pub(crate) fn indexed(k: usize) -> Self {
        Self {
            indexed: true,
            shape: Shape::row(k),
        }
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Form{:?}", self.id())
    }
}

// Planes of fewer values are handled on one thread: another costs more.
pub(crate) const FEW: usize = 1 << 14;

/// A form, its numbers, and the values of its parts.
#[derive(Debug)]
pub(crate) struct Reduction<'a> {
    pub(crate) form: &'static Form,
    pub(crate) numbers: Numbers,
    pub(crate) parts: Vec<ReducedPart<'a>>,
}

/// The values of one part; of an indexed one also their places, ascending.
#[derive(Debug)]
pub(crate) struct ReducedPart<'a> {
    pub(crate) support: Option<Vec<u32>>,
    pub(crate) values: Cow<'a, [f32]>,
    pub(crate) shape: Shape,
    /// The values with one code, if they are coded already.
    pub(crate) plane: Option<CodedPlane>,
}

#[derive(Debug)]
pub(crate) struct CodedPlane {
    pub(crate) code: Code,
    pub(crate) bytes: Vec<u8>,
    pub(crate) size: Size,
    /// What it decodes to.
    pub(crate) known: Arc<dyn KnownPlane>,
}

impl<'a> Reduction<'a> {
    /// One part that is not indexed.
    pub(crate) fn plain(
        form: &'static Form,
        numbers: Numbers,
        values: impl Into<Cow<'a, [f32]>>,
        shape: Shape,
    ) -> Self {
        let parts = vec![ReducedPart::plain(values, shape.rows, shape.cols)];
        Self { form, numbers, parts }
    }

    pub(crate) fn is_finite(&self) -> bool {
        self.parts.iter().all(|part| all_finite(&part.values))
    }
}

impl<'a> ReducedPart<'a> {
    pub(crate) fn plain(values: impl Into<Cow<'a, [f32]>>, rows: usize, cols: usize) -> Self {
        Self {
            support: None,
            values: values.into(),
            shape: Shape { rows, cols },
            plane: None,
        }
    }

    /// Those of `values` that are at the indices `support`.
    pub(crate) fn indexed(threads: usize, values: &[f32], support: Vec<u32>) -> Self {
        let at = |indices: &[u32]| -> Vec<f32> { indices.iter().map(|&index| values[index as usize]).collect() };
        let (first, second) = support.split_at(support.len() / threads.clamp(1, 2));
        let kept = if support.len() < FEW {
            at(&support)
        } else {
            let (mut kept, second) = both(threads, || at(first), || at(second));
            kept.extend_from_slice(&second);
            kept
        };
        Self {
            shape: Shape::row(kept.len()),
            support: Some(support),
            values: Cow::Owned(kept),
            plane: None,
        }
    }
}
