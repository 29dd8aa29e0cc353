//! Encoder: values to symbols and scales.

use half::bf16;

use crate::code::method::Code;
use crate::code::symbols::encode_symbols;
use crate::code::words::encode_words;
use crate::finite::largest;
use crate::quantize::method::Size;
use crate::quantize::numbers::sum_of_squares;
use crate::quantize::uniform::levels::middle;
use crate::quantize::uniform::{Norm, Rounding, Uniform};
use crate::rng::KeyedRng;
use crate::simd::vectorized;

// A block whose largest magnitude is below this is sent as zeros, so that the factor from values to levels stays
// finite.
const SMALLEST_SCALE: f32 = 3.0e-36;

impl Uniform {
    /// Appends the planes of `values`, which are finite.
    pub(crate) fn encode_planes(self, values: &[f32], code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size {
        let mut symbols = vec![0; values.len()];
        let mut scales = Vec::with_capacity(values.len().div_ceil(self.block as usize));
        let blocks = values
            .chunks(self.block as usize)
            .zip(symbols.chunks_mut(self.block as usize));
        for (block, (values, symbols)) in blocks.enumerate() {
            let scale = self.scale(values);
            let first = block * self.block as usize;
            match (self.rounding, self.bits()) {
                _ if scale == bf16::ZERO => symbols.fill(middle(self.bits())),
                (Rounding::Nearest, 1) => signs(values, symbols),
                (Rounding::Nearest, bits) => nearest(values, scale.to_f32(), middle(bits), symbols),
                (Rounding::Stochastic, 1) => random_signs(values, scale.to_f32(), rng, first, symbols),
                (Rounding::Stochastic, bits) => {
                    stochastic(values, scale.to_f32(), middle(bits), rng, first, symbols);
                }
            }
            scales.push(scale.to_le_bytes());
        }
        let plain = scales.len() * 2 + (values.len() * self.bits() as usize).div_ceil(8);
        let bound = encode_words(scales.into_iter(), code, out) + encode_symbols(&symbols, self.bits(), code, out);
        Size::new(plain as u64, bound)
    }

    fn scale(self, values: &[f32]) -> bf16 {
        let largest = largest(values);
        if largest < SMALLEST_SCALE {
            return bf16::ZERO;
        }
        if self.bits() == 1 && self.rounding == Rounding::Nearest {
            let sum: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
            return bf16::from_f64(sum / values.len() as f64).min(bf16::MAX);
        }
        let norm = match self.norm {
            Norm::Max => largest,
            // An infinite norm becomes the largest bfloat16; the clamp of the levels then bounds the error.
            Norm::L2 => sum_of_squares(values).sqrt() as f32,
        };
        let up = (norm.to_bits() + 0xffff) >> 16;
        bf16::from_bits(up as u16).min(bf16::MAX)
    }
}

#[inline(never)]
fn nearest(values: &[f32], scale: f32, middle: u8, symbols: &mut [u8]) {
    // Adding 1.5 * 2^23 leaves the nearest integer in the lowest mantissa bits (ties to even).
    const MAGIC: f32 = 12_582_912.0;
    let levels = f32::from(middle);
    let zero = MAGIC.to_bits().wrapping_sub(u32::from(middle));
    let factor = levels / scale;
    for (symbol, value) in symbols.iter_mut().zip(values) {
        let level = (value * factor).clamp(-levels, levels) + MAGIC;
        *symbol = level.to_bits().wrapping_sub(zero) as u8;
    }
}

fn stochastic(values: &[f32], scale: f32, middle: u8, rng: KeyedRng, first: usize, symbols: &mut [u8]) {
    let levels = f32::from(middle);
    let factor = levels / scale;
    vectorized(
        #[inline(always)]
        || {
            for (at, (symbol, value)) in symbols.iter_mut().zip(values).enumerate() {
                let level = (value * factor + rng.unit(first + at)).floor().clamp(-levels, levels);
                // By way of an integer to which vectors convert.
                *symbol = (level + levels) as i32 as u8;
            }
        },
    );
}

fn signs(values: &[f32], symbols: &mut [u8]) {
    symbols
        .iter_mut()
        .zip(values)
        .for_each(|(symbol, &value)| *symbol = u8::from(value >= 0.0));
}

fn random_signs(values: &[f32], scale: f32, rng: KeyedRng, first: usize, symbols: &mut [u8]) {
    vectorized(
        #[inline(always)]
        || {
            for (at, (symbol, value)) in symbols.iter_mut().zip(values).enumerate() {
                *symbol = u8::from(rng.unit(first + at) < 0.5 + 0.5 * (value / scale));
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_kernel_agrees_with_rounding() {
        let rng = KeyedRng::new(6, 0);
        for bits in 2..=8 {
            let (middle, scale) = (middle(bits), 0.75);
            let values: Vec<f32> = (0..5000).map(|i| (rng.unit(i) * 2.0 - 1.0) * scale).collect();
            let mut symbols = vec![0; values.len()];
            nearest(&values, scale, middle, &mut symbols);
            let factor = f32::from(middle) / scale;
            let reference = |value: &f32| ((value * factor).round_ties_even() + f32::from(middle)) as u8;
            assert_eq!(symbols, values.iter().map(reference).collect::<Vec<u8>>());
        }
    }
}
