//! Decoder: symbols and scales to values.

use half::bf16;

use crate::code::method::Code;
use crate::code::symbols::{SymbolPlane, Symbols};
use crate::code::words::{WordPlane, Words};
use crate::error::Error;
use crate::quantize::method::{ValuePlane, ValueReader};
use crate::quantize::uniform::levels::middle;
use crate::wire::Reader;

// Symbols per block on the stack.
const PORTION: usize = 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane<'a> {
    bits: u32,
    block: usize,
    offset: usize,
    scales: WordPlane<'a, 2>,
    scale_bytes: usize,
    symbols: SymbolPlane<'a>,
}

impl<'a> Plane<'a> {
    /// Range: `bits` 1 to 8, `block` a power of two from 16 to 65536.
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        count: usize,
        bits: u32,
        block: usize,
        code: Code,
    ) -> Result<Self, Error> {
        let offset = reader.offset();
        let scales = WordPlane::read(reader, count.div_ceil(block), code)?;
        let scale_bytes = reader.offset() - offset;
        Ok(Self {
            bits,
            block,
            offset,
            scales,
            scale_bytes,
            symbols: SymbolPlane::read(reader, count, bits, code)?,
        })
    }
}

impl<'a> ValuePlane<'a> for Plane<'a> {
    fn scale_bytes(&self) -> usize {
        self.scale_bytes
    }

    fn scale_bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        self.scales.bound(count.div_ceil(self.block), code)
    }

    fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        self.symbols.bound(count, code)
    }

    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error> {
        Ok(Box::new(Values {
            levels: levels(self.bits),
            unused: if self.bits == 1 {
                2
            } else {
                u16::from(middle(self.bits)) * 2 + 1
            },
            block: self.block,
            offset: self.offset,
            scales: self.scales.open()?,
            symbols: self.symbols.open()?,
            scale: 0.0,
            left: 0,
        }))
    }
}

#[derive(Debug)]
pub(crate) struct Values<'a> {
    levels: [f32; 256],
    /// The first symbol without a level.
    unused: u16,
    block: usize,
    offset: usize,
    scales: Words<'a, 2>,
    symbols: Symbols<'a>,
    scale: f32,
    left: usize,
}

impl Values<'_> {
    fn next_scale(&mut self) -> Result<(), Error> {
        let scale = bf16::from_le_bytes(self.scales.next(&mut [[0; 2]])[0]);
        if !scale.is_finite() {
            return Err(Error::NotFinite("scale of a block".to_owned()));
        }
        if scale.is_sign_negative() {
            return Err(Error::Corrupt {
                what: "negative scale".to_owned(),
                offset: self.offset,
            });
        }
        self.scale = scale.to_f32();
        self.left = self.block;
        Ok(())
    }
}

impl ValueReader for Values<'_> {
    fn read(&mut self, mut out: &mut [f32]) -> Result<(), Error> {
        let mut symbols = [0; PORTION];
        while !out.is_empty() {
            if self.left == 0 {
                self.next_scale()?;
            }
            let (part, rest) = out.split_at_mut(out.len().min(self.left).min(PORTION));
            let symbols = &mut symbols[..part.len()];
            self.symbols.read(symbols);
            if symbols.iter().fold(0, |most, &symbol| most.max(symbol)) as u16 >= self.unused {
                return Err(Error::Corrupt {
                    what: "symbol without a level".to_owned(),
                    offset: self.offset,
                });
            }
            for (value, &symbol) in part.iter_mut().zip(&*symbols) {
                *value = self.levels[usize::from(symbol)] * self.scale;
            }
            self.left -= part.len();
            out = rest;
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.scales.finish()?;
        self.symbols.finish()
    }
}

/// The level of each symbol, in units of the scale.
fn levels(bits: u32) -> [f32; 256] {
    let middle = f32::from(middle(bits));
    std::array::from_fn(|symbol| match bits {
        1 => symbol as f32 * 2.0 - 1.0,
        _ => (symbol as f32 - middle) / middle,
    })
}
