//! Natural compression (Horvath et al. 2019, definition 1): a magnitude in `[2^e, 2^(e+1))` is rounded to one of the
//! two powers of two, up with probability `(|v| - 2^e) / 2^e`, so the expectation is the value.
//!
//! `E[(C(v) - v)^2] = (|v| - 2^e) (2^(e+1) - |v|) <= v^2 / 8`: omega = 1/8. Magnitudes above 2^127 have no upper power
//! and become 2^127.
//!
//! The planes are the exponent E of the highest level (a signed 16-bit integer), a symbol plane of width 8 and one of
//! width 1. Symbol `s` of the first means `2^(E - s)`, and 255 means zero; the second is 1 for a minus sign. Magnitudes
//! below the lowest of the 255 levels are rounded to that level or zero, also without bias.

use crate::code::method::Code;
use crate::code::symbols::{SymbolPlane, Symbols, encode_symbols};
use crate::error::Error;
use crate::finite::largest;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::method::{Entry, Quantizer, Size, ValuePlane, ValueReader};
use crate::rng::KeyedRng;
use crate::wire::{Reader, Writer};

// Values per block on the stack.
const BLOCK: usize = 1024;
// Exponents of the smallest subnormal and of the largest power of two in `f32`.
const LOWEST: i32 = -149;
const HIGHEST: i32 = 127;
// The symbol of zero, one above the symbol of the lowest level.
const ZERO: u8 = 255;

#[derive(Debug)]
pub(crate) struct Natural;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "natural",
        about: "A signed power of two, rounded at random without bias: relative variance at most 1/8.",
        examples: &["'natural'"],
        leaves_out: false,
    },
    tag: 5,
    bytes: None,
    words: |_| "natural".to_owned(),
    read: |reader, expected| Ok(Box::new(Plane::read(reader, expected.shape.len(), expected.code)?)),
};

impl Quantizer for Natural {
    fn encode(&self, values: &[f32], _: Shape, code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size {
        let top = floor_exponent(largest(values).to_bits()).map_or(0, |exponent| (exponent + 1).min(HIGHEST));
        let mut symbols = vec![ZERO; values.len()];
        let mut signs = vec![0; values.len()];
        for (at, ((value, symbol), sign)) in values.iter().zip(&mut symbols).zip(&mut signs).enumerate() {
            let bits = rng.bits(at);
            let magnitude = value.to_bits() & 0x7fff_ffff;
            // Adding 23 uniform random bits carries into the exponent with probability mantissa / 2^23.
            let exponent = ((magnitude + (bits >> 41) as u32) >> 23) as i32 - 127;
            let depth = top - exponent.min(HIGHEST);
            *symbol = if magnitude >> 23 != 0 && depth < i32::from(ZERO) {
                depth as u8
            } else {
                far_below(*value, top, bits)
            };
            *sign = u8::from(*symbol != ZERO && value.is_sign_negative());
        }
        Writer::new(out).u16(top as i16 as u16);
        let count = values.len() as u64;
        let bound = 2.0 + encode_symbols(&symbols, 8, code, out) + encode_symbols(&signs, 1, code, out);
        Size::new(2 + count + count.div_ceil(8), bound)
    }

    fn bits(&self) -> f64 {
        9.0
    }

    fn most_bytes(&self, len: usize) -> usize {
        2 + len + len.div_ceil(8)
    }
}

/// Floor of the binary logarithm of a magnitude given by its bits; `None` for zero.
fn floor_exponent(bits: u32) -> Option<i32> {
    match bits >> 23 {
        0 => bits.checked_ilog2().map(|high| high as i32 + LOWEST),
        biased => Some(biased as i32 - 127),
    }
}

/// The symbol of a value that is subnormal or possibly below the lowest level.
#[cold]
fn far_below(value: f32, top: i32, bits: u64) -> u8 {
    let magnitude = f64::from(value.abs());
    let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    let Some(exponent) = floor_exponent(value.abs().to_bits()) else {
        return ZERO;
    };
    let lowest = top - i32::from(ZERO) + 1;
    if exponent < lowest {
        return if unit < magnitude / power(lowest) {
            ZERO - 1
        } else {
            ZERO
        };
    }
    let up = unit < magnitude / power(exponent) - 1.0;
    (top - exponent - i32::from(up)) as u8
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane<'a> {
    top: i32,
    symbols: SymbolPlane<'a>,
    signs: SymbolPlane<'a>,
}

impl<'a> Plane<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, count: usize, code: Code) -> Result<Self, Error> {
        let top = i32::from(reader.u16("natural exponent")? as i16);
        if !(LOWEST..=HIGHEST).contains(&top) {
            return Err(reader.corrupt("natural exponent"));
        }
        Ok(Self {
            top,
            symbols: SymbolPlane::read(reader, count, 8, code)?,
            signs: SymbolPlane::read(reader, count, 1, code)?,
        })
    }
}

impl<'a> ValuePlane<'a> for Plane<'a> {
    fn scale_bytes(&self) -> usize {
        2
    }

    fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        Ok(self.symbols.bound(count, code)? + self.signs.bound(count, code)?)
    }

    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error> {
        Ok(Box::new(Values {
            levels: levels(self.top),
            symbols: self.symbols.open()?,
            signs: self.signs.open()?,
        }))
    }
}

/// The float bits of each symbol. Powers below the smallest subnormal are zero.
fn levels(top: i32) -> [u32; 256] {
    std::array::from_fn(|symbol| match top - symbol as i32 {
        _ if symbol == usize::from(ZERO) => 0,
        exponent @ -126.. => ((exponent + 127) as u32) << 23,
        exponent @ LOWEST.. => 1 << (exponent - LOWEST),
        _ => 0,
    })
}

#[derive(Debug)]
pub(crate) struct Values<'a> {
    levels: [u32; 256],
    symbols: Symbols<'a>,
    signs: Symbols<'a>,
}

impl ValueReader for Values<'_> {
    fn read(&mut self, out: &mut [f32]) -> Result<(), Error> {
        let mut symbols = [0; BLOCK];
        let mut signs = [0; BLOCK];
        for part in out.chunks_mut(BLOCK) {
            let symbols = &mut symbols[..part.len()];
            let signs = &mut signs[..part.len()];
            self.symbols.read(symbols);
            self.signs.read(signs);
            for ((value, &symbol), &sign) in part.iter_mut().zip(&*symbols).zip(&*signs) {
                *value = f32::from_bits(self.levels[usize::from(symbol)] | u32::from(sign) << 31);
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.symbols.finish()?;
        self.signs.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::laws::{corruption, heavy, round_trip, sizes, unbiased};

    /// The powers of two around `value`.
    fn neighbors(value: f64) -> (f64, f64) {
        let low = value.log2().floor().exp2();
        (low, if low == value { low } else { low * 2.0 })
    }

    #[test]
    fn the_expectation_is_the_value_and_the_error_is_known() {
        let small = f32::MIN_POSITIVE;
        for values in [
            [0.9f32, -0.5, 0.3, -0.1, 0.05, 0.0, -0.02, 0.6],
            [
                small * 1.3,
                -small * 0.9,
                small * 0.51,
                1e-45,
                -4e-45,
                7e-45,
                0.0,
                small,
            ],
        ] {
            let error = |value: f32| {
                let value = f64::from(value.abs());
                let (low, high) = neighbors(value.max(1e-300));
                if value == 0.0 {
                    0.0
                } else {
                    (value - low) * (high - value)
                }
            };
            unbiased(QuantizeSpec::Natural, &values, |i| error(values[i]));
        }
    }

    #[test]
    fn levels_are_the_two_powers_beside_the_value() {
        let values = heavy(4000, 2);
        for code in [Code::Pack, Code::Rans] {
            let out = round_trip(QuantizeSpec::Natural, &values, code, 3);
            for (value, out) in values.iter().zip(out) {
                let (low, high) = neighbors(f64::from(value.abs()));
                let level = f64::from(out.abs());
                assert!((level == low || level == high) && out.is_sign_negative() == value.is_sign_negative());
            }
        }
    }

    #[test]
    fn values_far_apart_lose_only_what_255_levels_cannot_hold() {
        let values = [f32::MAX, -1e38, 1e-45, -1e-40, 0.0];
        let out = round_trip(QuantizeSpec::Natural, &values, Code::Pack, 1);
        let top = 2f32.powi(127);
        assert_eq!(out[0], top);
        assert!(out[1] <= -top / 4.0 && out[2] >= 0.0 && out[2] <= 2e-38 && out[3] <= 0.0 && out[4] == 0.0);
        // The lowest level is 2^-127, so 2^-128 rounds up half of the time.
        let half = [f32::MAX, f32::from_bits(1 << 21)];
        let kept = (0..1000).filter(|&seed| round_trip(QuantizeSpec::Natural, &half, Code::Pack, seed)[1] > 0.0);
        assert!((400..600).contains(&kept.count()));
        sizes(QuantizeSpec::Natural);
        corruption(QuantizeSpec::Natural);
    }
}
