//! binary16 values with one shared power of two per tensor.
//!
//! The planes are the shared exponent (one signed byte) and the binary16 words. The exponent scales the largest
//! magnitude to `[2^14, 2^15)`, so no value overflows and small updates do not become subnormal. Magnitudes are clamped
//! below 2^15, since 2^15 times the highest power would be infinite.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::code::method::Code;
use crate::code::words::{WordPlane, Words, encode_words};
use crate::error::Error;
use crate::finite::largest;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::method::{Entry, Quantizer, Size, ValuePlane, ValueReader};
use crate::rng::KeyedRng;
use crate::wire::{Reader, Writer};

const BLOCK: usize = 1024;
// Exponents for which `2^e` and `2^-e` are normal floats, and 2^14, the scale of the largest magnitude, times `2^e` is
// at most 2^127.
const LOWEST: i32 = -126;
const HIGHEST: i32 = 113;
// The largest binary16 below 2^15: words of that octave are 16 apart.
const LIMIT: f32 = 32_752.0;

#[derive(Debug)]
pub(crate) struct Half;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "half",
        about: "16-bit floats with one shared power of two per tensor: relative error at most 2^-11 down to 2^-28 of the largest magnitude.",
        examples: &["'half'"],
        leaves_out: false,
    },
    tag: 1,
    bytes: None,
    words: |_| "half".to_owned(),
    read: |reader, expected| Ok(Box::new(Plane::read(reader, expected.shape.len(), expected.code)?)),
};

impl Quantizer for Half {
    fn encode(&self, values: &[f32], _: Shape, code: Code, _: KeyedRng, out: &mut Vec<u8>) -> Size {
        let exponent = exponent(largest(values));
        Writer::new(out).u8(exponent as u8);
        let factor = power(-i32::from(exponent));
        let mut halves = Vec::with_capacity(values.len());
        let mut scaled = [0.0; BLOCK];
        let mut block = [f16::ZERO; BLOCK];
        for part in values.chunks(BLOCK) {
            let scaled = &mut scaled[..part.len()];
            let block = &mut block[..part.len()];
            scaled
                .iter_mut()
                .zip(part)
                .for_each(|(scaled, value)| *scaled = (value * factor).clamp(-LIMIT, LIMIT));
            block.convert_from_f32_slice(scaled);
            halves.extend_from_slice(block);
        }
        let bound = encode_words(halves.iter().map(|half| half.to_le_bytes()), code, out);
        Size::new(1 + values.len() as u64 * 2, 1.0 + bound)
    }

    fn bits(&self) -> f64 {
        16.0
    }

    fn most_bytes(&self, len: usize) -> usize {
        1 + len * 2
    }
}

fn exponent(largest: f32) -> i8 {
    let unbiased = (largest.to_bits() >> 23) as i32 - 127;
    (unbiased - 14).clamp(LOWEST, HIGHEST) as i8
}

fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane<'a> {
    factor: f32,
    words: WordPlane<'a, 2>,
}

impl<'a> Plane<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, count: usize, code: Code) -> Result<Self, Error> {
        let exponent = i32::from(reader.u8("half exponent")? as i8);
        if !(LOWEST..=HIGHEST).contains(&exponent) {
            return Err(reader.corrupt("half exponent"));
        }
        Ok(Self {
            factor: power(exponent),
            words: WordPlane::read(reader, count, code)?,
        })
    }
}

impl<'a> ValuePlane<'a> for Plane<'a> {
    fn scale_bytes(&self) -> usize {
        1
    }

    /// Excludes the exponent byte, which [`ValuePlane::scale_bound`] counts.
    fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        self.words.bound(count, code)
    }

    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error> {
        Ok(Box::new(Values {
            factor: self.factor,
            words: self.words.open()?,
        }))
    }
}

#[derive(Debug)]
pub(crate) struct Values<'a> {
    factor: f32,
    words: Words<'a, 2>,
}

impl ValueReader for Values<'_> {
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        let mut words = [[0; 2]; BLOCK];
        let mut halves = [f16::ZERO; BLOCK];
        for part in out.chunks_mut(BLOCK) {
            let words = self.words.next(&mut words[..part.len()]);
            let halves = &mut halves[..part.len()];
            halves
                .iter_mut()
                .zip(words)
                .for_each(|(half, word)| *half = f16::from_le_bytes(*word));
            halves.convert_to_f32_slice(part);
            part.iter_mut().for_each(|value| *value *= self.factor);
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.words.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_keeps_eleven_bits() {
        for scale in [f32::MIN_POSITIVE, 1e-30, 1e-6, 1.0, 1e30, f32::MAX] {
            let values = [scale, -scale / 3.0, scale / 1000.0, 0.0];
            let mut bytes = Vec::new();
            Half.encode(&values, Shape::row(4), Code::Pack, KeyedRng::new(0, 0), &mut bytes);
            let plane = Plane::read(&mut Reader::new(&bytes), 4, Code::Pack).unwrap();
            let mut out = [0.0; 4];
            plane.open().unwrap().read(&mut out).unwrap();
            for (value, out) in values.iter().zip(out) {
                let step = (value.abs() / 2048.0).max(f32::MIN_POSITIVE / 16.0);
                assert!((value - out).abs() <= step, "{value:e} became {out:e}");
            }
        }
    }
}
