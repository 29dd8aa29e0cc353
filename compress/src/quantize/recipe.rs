//! The chosen quantizer of a section, as the decoder reads it.

use std::fmt;
use std::sync::Arc;

use crate::code::method::Code;
use crate::error::Error;
use crate::layout::Shape;
use crate::quantize::method::{AnyPlane, Entry, KnownPlane, PlaneContext, ValueReader};
use crate::quantize::{METHODS, QuantizeSpec};
use crate::rng::KeyedRng;
use crate::wire::{Reader, Writer};

/// The quantizer of a section and the parameters that its decoder needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Quantize {
    method: u8,
    byte: u8,
}

impl Quantize {
    /// IEEE binary32, bit for bit: the first entry of the table.
    pub const EXACT: Self = Self { method: 0, byte: 0 };

    pub(crate) fn of(spec: &QuantizeSpec) -> Self {
        let at = METHODS.iter().position(|entry| entry.info.name == spec.name());
        Self {
            method: at.unwrap_or_default() as u8,
            byte: spec.method().byte(),
        }
    }

    /// Name of the quantizer in TOML.
    pub fn name(self) -> &'static str {
        self.entry().info.name
    }

    fn entry(self) -> &'static Entry {
        &METHODS[usize::from(self.method)]
    }

    /// Three bits of the tag of a recipe.
    pub(crate) fn tag(self) -> u8 {
        self.entry().tag
    }

    /// Appends what follows the tag.
    pub(crate) fn write(self, out: &mut Writer<'_>) {
        if self.entry().bytes.is_some() {
            out.u8(self.byte);
        }
    }

    /// Reads what follows `tag`.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'_>) -> Result<Self, Error> {
        let mut entries = (0..).zip(METHODS).filter(|(_, entry)| entry.tag == tag).peekable();
        if let Some(&(method, Entry { bytes: None, .. })) = entries.peek() {
            return Ok(Self { method, byte: 0 });
        }
        let byte = reader.u8("numbers of the quantizer")?;
        let mut fitting = entries.filter(|(_, entry)| entry.bytes.as_ref().is_some_and(|bytes| bytes.contains(&byte)));
        let (method, _) = fitting
            .next()
            .ok_or_else(|| reader.corrupt("numbers of the quantizer"))?;
        Ok(Self { method, byte })
    }

    /// Reads the planes of values of `shape`.
    pub(crate) fn plane<'a>(
        self,
        reader: &mut Reader<'a>,
        shape: Shape,
        code: Code,
        rng: KeyedRng,
    ) -> Result<FoundPlane<'a>, Error> {
        let front = reader.clone();
        let byte = self.byte;
        let expected = PlaneContext { shape, byte, code, rng };
        let scale_bytes = (self.entry().read)(reader, expected)?.scale_bytes();
        Ok(FoundPlane {
            front,
            quantize: self,
            expected,
            scale_bytes,
            known: None,
        })
    }
}

/// Position of the plane of any quantizer. Each use parses the few bytes of its header again, so that a frame holds no
/// boxed plane, whose drop would extend the borrow of the bytes.
#[derive(Debug, Clone)]
pub(crate) struct FoundPlane<'a> {
    front: Reader<'a>,
    quantize: Quantize,
    expected: PlaneContext,
    scale_bytes: usize,
    /// What it decodes to, if that is known.
    known: Option<Arc<dyn KnownPlane>>,
}

impl<'a> FoundPlane<'a> {
    fn plane(&self) -> Result<AnyPlane<'a>, Error> {
        (self.quantize.entry().read)(&mut self.front.clone(), self.expected)
    }

    pub(crate) fn scale_bytes(&self) -> usize {
        self.scale_bytes
    }

    /// Lower bounds of the bytes of the scales and of the values.
    pub(crate) fn bounds(&self) -> Result<(f64, f64), Error> {
        let plane = self.plane()?;
        let count = self.expected.shape.len();
        let code = self.expected.code;
        Ok((plane.scale_bound(count, code)?, plane.bound(count, code)?))
    }

    /// The same plane, of which its encoder knows what it decodes to.
    pub(crate) fn know(&mut self, known: Option<Arc<dyn KnownPlane>>) {
        self.known = known;
    }

    pub(crate) fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error> {
        if let Some(known) = &self.known {
            return Ok(Arc::clone(known).open());
        }
        self.plane()?.open()
    }
}

impl fmt::Display for Quantize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&(self.entry().words)(self.byte))
    }
}

impl fmt::Debug for Quantize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_writes_a_byte_that_is_read_as_the_method() {
        for info in METHODS.iter().map(|entry| entry.info) {
            for text in info.examples {
                let spec: toml::Table = toml::from_str(&format!("quantize = {text}")).unwrap();
                let written = Quantize::of(&spec["quantize"].clone().try_into().unwrap());
                let mut bytes = Vec::new();
                written.write(&mut Writer::new(&mut bytes));
                let read = Quantize::read(written.tag(), &mut Reader::new(&bytes));
                assert!(
                    read.as_ref() == Ok(&written),
                    "{text}: `Quantizer::byte` returns {}, which `Entry::bytes` of `{}` does not contain: {read:?}",
                    written.byte,
                    info.name
                );
            }
        }
    }

    #[test]
    fn every_byte_of_every_method_round_trips_and_all_others_are_refused() {
        assert_eq!((Quantize::EXACT.name(), METHODS[0].tag), ("exact", 0));
        for tag in 0..8 {
            for byte in 0..=255 {
                let bytes = [byte];
                let mut reader = Reader::new(&bytes);
                let read = Quantize::read(tag, &mut reader);
                let takes =
                    |entry: &Entry| entry.tag == tag && entry.bytes.as_ref().is_none_or(|bytes| bytes.contains(&byte));
                let known: Vec<&Entry> = METHODS.iter().filter(|entry| takes(entry)).collect();
                assert!(known.len() <= 1, "tag {tag}, byte {byte} belongs to several methods");
                assert_eq!(read.is_ok(), known.len() == 1, "tag {tag}, byte {byte}");
                let Ok(read) = read else { continue };
                assert_eq!((read.name(), read.tag()), (known[0].info.name, tag));
                let mut again = Vec::new();
                read.write(&mut Writer::new(&mut again));
                assert_eq!(again, bytes[..reader.offset()]);
                assert!(!read.to_string().is_empty());
            }
        }
    }
}
