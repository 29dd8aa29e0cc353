//! The recipe of a section: the numbers chosen for one tensor, which are the header of its section and all that its decoder sees.

use crate::code::method::Code;
use crate::error::Error;
use crate::layout::Shape;
use crate::quantize::dead_zone;
use crate::quantize::recipe::Quantize;
use crate::reduce::recipe::Reduce;
use crate::wire::{Reader, Writer};

/// The chosen codec of one section.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// Which values are sent.
    pub reduce: Reduce,
    /// The quantizer.
    pub quantize: Quantize,
    /// The lossless code.
    pub code: Code,
}

impl Recipe {
    /// Every value, bit for bit, uncoded.
    pub const EXACT: Self = Self {
        reduce: Reduce::KEEP,
        quantize: Quantize::EXACT,
        code: Code::Pack,
    };

    /// Whether the section decodes bit for bit.
    pub fn is_lossless(&self) -> bool {
        self.reduce == Reduce::KEEP && self.quantize == Quantize::EXACT
    }

    /// Whether the values are multiples of a step: a dead zone over all values, or zeros.
    pub(crate) fn is_multiples(&self) -> bool {
        let is_dead_zone = self.quantize.name() == dead_zone::METHOD.info.name;
        self.reduce.is_zero() || (self.reduce == Reduce::KEEP && is_dead_zone)
    }

    /// Appends the tag (bits 0-1 reduce, 2-4 quantize, 5-7 code), then the parameters of each slot.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        out.u8(self.reduce.tag() | self.quantize.tag() << 2 | self.code.tag() << 5);
        self.reduce.write(out);
        self.quantize.write(out);
    }

    /// Reads a recipe for a tensor of `shape` and checks the ranges of its parameters.
    pub(crate) fn read(reader: &mut Reader<'_>, shape: Shape) -> Result<Self, Error> {
        let tag = reader.u8("recipe")?;
        let code = Code::of_tag(tag >> 5).ok_or_else(|| reader.corrupt("code"))?;
        Ok(Self {
            reduce: Reduce::read(tag & 3, reader, shape)?,
            quantize: Quantize::read(tag >> 2 & 7, reader)?,
            code,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_round_trips() {
        let all = (0..8).flat_map(|tag| (0..=255).map(move |byte| (tag, [byte])));
        let all = all.filter_map(|(tag, byte)| Quantize::read(tag, &mut Reader::new(&byte)).ok());
        for quantize in all {
            let reduces = [[0, 0], [1, 0], [1, 44]].map(|[tag, k]| {
                let bytes = [k, 1];
                Reduce::read(tag, &mut Reader::new(&bytes), Shape::row(300)).unwrap()
            });
            for reduce in reduces {
                for code in Code::ALL.iter().copied() {
                    let recipe = Recipe { reduce, quantize, code };
                    let mut bytes = Vec::new();
                    recipe.write(&mut Writer::new(&mut bytes));
                    let mut reader = Reader::new(&bytes);
                    assert_eq!(Recipe::read(&mut reader, Shape::row(300)), Ok(recipe));
                    assert_eq!(reader.finish("end"), Ok(()));
                }
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let read = |bytes: &[u8]| Recipe::read(&mut Reader::new(bytes), Shape::row(10));
        let shared = crate::quantize::METHODS.iter().filter(|entry| entry.tag == 7);
        let last = shared
            .filter_map(|entry| entry.bytes.as_ref())
            .map(|bytes| *bytes.end());
        let unused = last.max().unwrap() + 1;
        for bytes in [
            &[5u8 << 5][..],
            &[7 << 5],
            &[3, 5],
            &[7 << 2, unused],
            &[6 << 2, 4],
            &[1, 11],
            &[2 << 2, 13 << 3],
            &[2 << 2, 0x80],
        ] {
            assert!(matches!(read(bytes), Err(Error::Corrupt { .. })), "{bytes:?}");
        }
        assert!(matches!(read(&[1]), Err(Error::Truncated { .. })));
    }
}
