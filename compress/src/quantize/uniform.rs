//! Evenly spaced levels between minus and plus a scale, one scale for each block of values.
//!
//! With `m = 2^(bits-1) - 1`, symbol `s` of a block with scale `c` stands for `((s - m) / m) * c`, computed in `f32` in
//! that order; symbol `2m + 1` is not used. One bit has no room for a zero: symbols 0 and 1 stand for `-c` and `c`.
//!
//! The scale is a bfloat16: two bytes with the whole range of `f32`. It is the block's largest magnitude, rounded up, so
//! that no value is clipped; for one bit and nearest rounding it is the mean magnitude, which makes the error least.
//!
//! Stochastic rounding takes the upper of the two nearest levels with the probability that makes the expectation the
//! value itself (QSGD, Alistarh et al. 2017, with the maximum norm).

use std::fmt;

use ::half::bf16;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Size, largest};
use crate::Error;
use crate::code::{Code, SymbolPlane, Symbols, WordPlane, Words, encode_symbols, encode_words};
use crate::rng::Draws;
use crate::wire::Reader;

const DEFAULT_BLOCK: u32 = 1024;
/// A block whose largest magnitude is below this is sent as zeros: the factor from value to level stays finite.
const SMALLEST_SCALE: f32 = 3.0e-36;
/// Values decoded at a time.
const PORTION: usize = 1024;

/// Whether a value goes to the nearest level, or to one of its two neighbours by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// To the nearest level: least error.
    #[default]
    Nearest,
    /// To either neighbour, without bias.
    Stochastic,
}

/// Uniform quantisation, as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Uniform {
    bits: u32,
    rounding: Rounding,
    block: u32,
}

impl Uniform {
    /// `bits` a value, `block` values a scale.
    ///
    /// # Errors
    /// `Usage` unless bits are 1 to 8, and the block a power of two from 16 to 65536.
    pub fn new(bits: u32, rounding: Rounding, block: u32) -> Result<Self, Error> {
        if !(1..=8).contains(&bits) {
            return Err(Error::Usage(format!("uniform takes 1 to 8 bits, not {bits}")));
        }
        if !is_block(block) {
            return Err(Error::Usage(format!("a block is a power of two from 16 to 65536, not {block}")));
        }
        Ok(Self { bits, rounding, block })
    }

    /// Bits a value.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// How values are rounded.
    pub fn rounding(&self) -> Rounding {
        self.rounding
    }

    /// Values a scale.
    pub fn block(&self) -> u32 {
        self.block
    }

    pub(super) fn encode(self, values: &[f32], code: Code, draws: Draws, out: &mut Vec<u8>) -> Size {
        let mut symbols = vec![0; values.len()];
        let mut scales = Vec::with_capacity(values.len().div_ceil(self.block as usize));
        let blocks = values.chunks(self.block as usize).zip(symbols.chunks_mut(self.block as usize));
        for (block, (values, symbols)) in blocks.enumerate() {
            let scale = self.scale(values);
            let first = block * self.block as usize;
            match (self.rounding, self.bits) {
                _ if scale == bf16::ZERO => symbols.fill(middle(self.bits)),
                (Rounding::Nearest, 1) => signs(values, symbols),
                (Rounding::Nearest, bits) => nearest(values, scale.to_f32(), middle(bits), symbols),
                (Rounding::Stochastic, 1) => random_signs(values, scale.to_f32(), draws, first, symbols),
                (Rounding::Stochastic, bits) => {
                    stochastic(values, scale.to_f32(), middle(bits), draws, first, symbols);
                }
            }
            scales.push(scale.to_le_bytes());
        }
        let plain = scales.len() * 2 + (values.len() * self.bits as usize).div_ceil(8);
        let bound = encode_words(scales.into_iter(), code, out) + encode_symbols(&symbols, self.bits, code, out);
        Size { plain: plain as u64, bound }
    }

    fn scale(self, values: &[f32]) -> bf16 {
        let largest = largest(values);
        if largest < SMALLEST_SCALE {
            return bf16::ZERO;
        }
        if self.bits == 1 && self.rounding == Rounding::Nearest {
            let sum: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
            return bf16::from_f64(sum / values.len() as f64).min(bf16::MAX);
        }
        let up = (largest.to_bits() + 0xffff) >> 16;
        bf16::from_bits(up as u16).min(bf16::MAX)
    }
}

fn is_block(block: u32) -> bool {
    block.is_power_of_two() && (16..=65_536).contains(&block)
}

/// The symbol of level zero; of the lower level for one bit.
fn middle(bits: u32) -> u8 {
    ((1u32 << (bits - 1)) - 1) as u8
}

#[inline(never)]
fn nearest(values: &[f32], scale: f32, middle: u8, symbols: &mut [u8]) {
    // Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits (ties to even).
    const MAGIC: f32 = 12_582_912.0;
    let (levels, zero) = (f32::from(middle), MAGIC.to_bits().wrapping_sub(u32::from(middle)));
    let factor = levels / scale;
    for (symbol, value) in symbols.iter_mut().zip(values) {
        let level = (value * factor).clamp(-levels, levels) + MAGIC;
        *symbol = level.to_bits().wrapping_sub(zero) as u8;
    }
}

fn stochastic(values: &[f32], scale: f32, middle: u8, draws: Draws, first: usize, symbols: &mut [u8]) {
    let levels = f32::from(middle);
    let factor = levels / scale;
    for (at, (symbol, value)) in symbols.iter_mut().zip(values).enumerate() {
        let level = (value * factor + draws.unit(first + at)).floor().clamp(-levels, levels);
        *symbol = (level + levels) as u8;
    }
}

fn signs(values: &[f32], symbols: &mut [u8]) {
    symbols.iter_mut().zip(values).for_each(|(symbol, &value)| *symbol = u8::from(value >= 0.0));
}

fn random_signs(values: &[f32], scale: f32, draws: Draws, first: usize, symbols: &mut [u8]) {
    for (at, (symbol, value)) in symbols.iter_mut().zip(values).enumerate() {
        *symbol = u8::from(draws.unit(first + at) < 0.5 + 0.5 * (value / scale));
    }
}

/// What each symbol stands for, in units of the scale.
fn levels(bits: u32) -> [f32; 256] {
    let middle = f32::from(middle(bits));
    std::array::from_fn(|symbol| match bits {
        1 => symbol as f32 * 2.0 - 1.0,
        _ => (symbol as f32 - middle) / middle,
    })
}

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
    /// Range: `bits` and `block` are those of a recipe.
    pub(super) fn read(
        reader: &mut Reader<'a>,
        count: usize,
        bits: u32,
        block: usize,
        code: Code,
    ) -> Result<Self, Error> {
        let offset = reader.offset();
        let scales = WordPlane::read(reader, count.div_ceil(block), code)?;
        let scale_bytes = reader.offset() - offset;
        Ok(Self { bits, block, offset, scales, scale_bytes, symbols: SymbolPlane::read(reader, count, bits, code)? })
    }

    pub(super) fn scale_bytes(&self) -> usize {
        self.scale_bytes
    }

    pub(super) fn open(&self) -> Result<Values<'a>, Error> {
        Ok(Values {
            levels: levels(self.bits),
            unused: if self.bits == 1 { 2 } else { u16::from(middle(self.bits)) * 2 + 1 },
            block: self.block,
            offset: self.offset,
            scales: self.scales.open()?,
            symbols: self.symbols.open()?,
            scale: 0.0,
            left: 0,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Values<'a> {
    levels: [f32; 256],
    /// The first symbol that stands for nothing.
    unused: u16,
    block: usize,
    offset: usize,
    scales: Words<'a, 2>,
    symbols: Symbols<'a>,
    scale: f32,
    /// Values left in the current block.
    left: usize,
}

impl Values<'_> {
    pub(super) fn read(&mut self, mut out: &mut [f32]) -> Result<(), Error> {
        let mut symbols = [0; PORTION];
        while !out.is_empty() {
            if self.left == 0 {
                self.next_scale()?;
            }
            let (part, rest) = out.split_at_mut(out.len().min(self.left).min(PORTION));
            let symbols = &mut symbols[..part.len()];
            self.symbols.read(symbols);
            if symbols.iter().fold(0, |most, &symbol| most.max(symbol)) as u16 >= self.unused {
                return Err(Error::Corrupt { what: "symbol without a level".to_owned(), offset: self.offset });
            }
            for (value, &symbol) in part.iter_mut().zip(&*symbols) {
                *value = self.levels[usize::from(symbol)] * self.scale;
            }
            self.left -= part.len();
            out = rest;
        }
        Ok(())
    }

    fn next_scale(&mut self) -> Result<(), Error> {
        let mut word = [[0; 2]];
        self.scales.read(&mut word);
        let scale = bf16::from_le_bytes(word[0]);
        if !scale.is_finite() {
            return Err(Error::NotFinite("scale of a block".to_owned()));
        }
        if scale.is_sign_negative() {
            return Err(Error::Corrupt { what: "negative scale".to_owned(), offset: self.offset });
        }
        self.scale = scale.to_f32();
        self.left = self.block;
        Ok(())
    }

    pub(super) fn finish(&self) -> Result<(), Error> {
        self.scales.finish()?;
        self.symbols.finish()
    }
}

impl<'de> Deserialize<'de> for Uniform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            bits: u32,
            #[serde(default)]
            rounding: Rounding,
            #[serde(default = "default_block")]
            block: u32,
        }

        fn default_block() -> u32 {
            DEFAULT_BLOCK
        }

        struct BitsOrTable;

        impl<'de> Visitor<'de> for BitsOrTable {
            type Value = Uniform;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bits from 1 to 8, or { bits = .., rounding = .., block = .. }")
            }

            fn visit_u64<E: serde::de::Error>(self, bits: u64) -> Result<Uniform, E> {
                let bits = u32::try_from(bits).unwrap_or(u32::MAX);
                Uniform::new(bits, Rounding::Nearest, DEFAULT_BLOCK).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, bits: i64) -> Result<Uniform, E> {
                self.visit_u64(u64::try_from(bits).unwrap_or(0))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Uniform, A::Error> {
                let raw = Raw::deserialize(MapAccessDeserializer::new(map))?;
                Uniform::new(raw.bits, raw.rounding, raw.block).map_err(serde::de::Error::custom)
            }
        }

        deserializer.deserialize_any(BitsOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(uniform: Uniform, values: &[f32], code: Code, seed: u64) -> Vec<f32> {
        let mut bytes = Vec::new();
        uniform.encode(values, code, Draws::new(seed, 0), &mut bytes);
        let mut reader = Reader::new(&bytes);
        let block = uniform.block() as usize;
        let plane = Plane::read(&mut reader, values.len(), uniform.bits(), block, code).unwrap();
        assert_eq!(reader.finish("end"), Ok(()));
        let mut open = plane.open().unwrap();
        let mut out = vec![0.0; values.len()];
        out.chunks_mut(100).for_each(|part| open.read(part).unwrap());
        open.finish().unwrap();
        out
    }

    #[test]
    fn nearest_is_off_by_at_most_half_a_step() {
        let draws = Draws::new(2, 0);
        let values: Vec<f32> = (0..2049).map(|i| (draws.unit(i) - 0.5) * (i / 100) as f32).collect();
        for (bits, code) in (2..=8).flat_map(|bits| [(bits, Code::Pack), (bits, Code::Rans)]) {
            let out = decode(Uniform::new(bits, Rounding::Nearest, 64).unwrap(), &values, code, 0);
            for (values, out) in values.chunks(64).zip(out.chunks(64)) {
                let step = largest(values) * 1.01 / f32::from(middle(bits));
                assert!(values.iter().zip(out).all(|(value, out)| (value - out).abs() <= step / 2.0));
            }
        }
    }

    #[test]
    fn one_bit_is_the_sign_and_the_mean_magnitude() {
        let values = [3.0, -1.0, 2.0, -2.0];
        let out = decode(Uniform::new(1, Rounding::Nearest, 1024).unwrap(), &values, Code::Pack, 0);
        assert_eq!(out, [2.0, -2.0, 2.0, -2.0]);
    }

    #[test]
    fn stochastic_has_no_bias() {
        let values = [0.9, -0.5, 0.3, -0.1, 0.05, 0.0, -0.02, 0.6];
        const DRAWS: u32 = 4000;
        for bits in [1, 2, 4] {
            let uniform = Uniform::new(bits, Rounding::Stochastic, 16).unwrap();
            let mut mean = [0.0f64; 8];
            for seed in 0..DRAWS {
                let out = decode(uniform, &values, Code::Pack, u64::from(seed));
                mean.iter_mut().zip(out).for_each(|(mean, out)| *mean += f64::from(out) / f64::from(DRAWS));
            }
            let step = if bits == 1 { 1.8 } else { 0.91 / f64::from(middle(bits)) };
            let tolerance = 5.0 * step / 2.0 / f64::from(DRAWS).sqrt();
            for (mean, value) in mean.iter().zip(values) {
                assert!((mean - f64::from(value)).abs() < tolerance, "{bits} bits: {mean} for {value}");
            }
        }
    }

    #[test]
    fn extreme_values_stay_finite() {
        for scale in [f32::MAX, 1e38, 1e-35, 1e-38, 1e-45] {
            for bits in 1..=8 {
                for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                    let values = [scale, -scale, scale / 2.0, 0.0];
                    let out = decode(Uniform::new(bits, rounding, 16).unwrap(), &values, Code::Pack, 1);
                    assert!(out.iter().all(|value| value.abs() <= scale * 1.01), "{scale:e} {bits} {out:?}");
                }
            }
        }
    }
}
