//! What was chosen for one tensor: plain numbers, the header of its section, and all that its decoder sees.

use crate::Error;
use crate::code::Code;
use crate::quantize::Quantize;
use crate::reduce::Reduce;
use crate::wire::{Reader, Writer};

/// How one tensor was encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// Which values were sent.
    pub reduce: Reduce,
    /// With what precision.
    pub quantize: Quantize,
    /// How they became bytes.
    pub code: Code,
}

impl Recipe {
    /// Every value, bit for bit, uncoded.
    pub const EXACT: Self = Self {
        reduce: Reduce::Keep,
        quantize: Quantize::Exact,
        code: Code::Pack,
    };

    /// Whether decoding gives back the tensor bit for bit.
    pub fn is_lossless(&self) -> bool {
        self.reduce == Reduce::Keep && self.quantize == Quantize::Exact
    }

    /// Number of values sent of a tensor of `len`.
    pub(crate) fn count(&self, len: usize) -> usize {
        match self.reduce {
            Reduce::Keep => len,
            Reduce::TopK { k } => k as usize,
        }
    }

    /// Tag (bits 0-1 reduce, 2-4 quantize, 5 code), then the numbers of each slot.
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let reduce = u8::from(self.reduce != Reduce::Keep);
        let quantize = match self.quantize {
            Quantize::Exact => 0,
            Quantize::Half => 1,
            Quantize::Uniform { .. } => 2,
        };
        out.u8(reduce | quantize << 2 | u8::from(self.code == Code::Rans) << 5);
        if let Reduce::TopK { k } = self.reduce {
            out.varint(u64::from(k));
        }
        if let Quantize::Uniform { bits, block } = self.quantize {
            out.u8((bits - 1) as u8 | ((block.ilog2() - 4) as u8) << 3);
        }
    }

    /// Reads a recipe for a tensor of `len` values, whose numbers are all within their ranges.
    pub(crate) fn read(reader: &mut Reader<'_>, len: usize) -> Result<Self, Error> {
        let tag = reader.u8("recipe")?;
        if tag >= 1 << 6 {
            return Err(reader.corrupt("recipe"));
        }
        let reduce = match tag & 3 {
            0 => Reduce::Keep,
            1 => {
                let k = reader.varint("k")?;
                let k = u32::try_from(k).ok().filter(|&k| k as usize <= len);
                Reduce::TopK {
                    k: k.ok_or_else(|| reader.corrupt("k"))?,
                }
            }
            _ => return Err(reader.corrupt("reduce")),
        };
        let quantize = match tag >> 2 & 7 {
            0 => Quantize::Exact,
            1 => Quantize::Half,
            2 => {
                let byte = u32::from(reader.u8("bits and block")?);
                if byte >> 3 > 12 {
                    return Err(reader.corrupt("bits and block"));
                }
                Quantize::Uniform {
                    bits: byte % 8 + 1,
                    block: 16 << (byte >> 3),
                }
            }
            _ => return Err(reader.corrupt("quantize")),
        };
        let code = if tag >> 5 == 0 { Code::Pack } else { Code::Rans };
        Ok(Self { reduce, quantize, code })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_round_trips() {
        let blocks = (4..=16).flat_map(|log| (1..=8).map(move |bits| Quantize::Uniform { bits, block: 1 << log }));
        for quantize in [Quantize::Exact, Quantize::Half].into_iter().chain(blocks) {
            for reduce in [Reduce::Keep, Reduce::TopK { k: 0 }, Reduce::TopK { k: 300 }] {
                for code in [Code::Pack, Code::Rans] {
                    let recipe = Recipe { reduce, quantize, code };
                    let mut bytes = Vec::new();
                    recipe.write(&mut Writer(&mut bytes));
                    let mut reader = Reader::new(&bytes);
                    assert_eq!(Recipe::read(&mut reader, 300), Ok(recipe));
                    assert_eq!(reader.finish("end"), Ok(()));
                }
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let read = |bytes: &[u8]| Recipe::read(&mut Reader::new(bytes), 10);
        for bytes in [
            &[2u8][..],
            &[3],
            &[3 << 2],
            &[1 << 6],
            &[1 << 7],
            &[1, 11],
            &[2 << 2, 13 << 3],
            &[2 << 2, 0x80],
        ] {
            assert!(matches!(read(bytes), Err(Error::Corrupt { .. })), "{bytes:?}");
        }
        assert!(matches!(read(&[1]), Err(Error::Truncated { .. })));
    }
}
