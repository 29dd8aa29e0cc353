//! bfloat16: the upper half of a binary32, rounded to nearest, ties to even.
//!
//! `C(v) = sign * m * 2^e` with eight significant bits: the relative error is at most 2^-8 down to the smallest normal
//! number, so the contraction is `delta >= 1 - 2^-16`. A magnitude that would round to infinity becomes the largest
//! finite one.

use crate::code::method::Code;
use crate::code::words::encode_words;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::exact::Plane;
use crate::quantize::method::{Entry, Quantizer, Size};
use crate::rng::KeyedRng;

// The bits of the largest finite value.
const LARGEST: u32 = 0x7f7f;

/// 16 bits per value.
#[derive(Debug)]
pub(crate) struct Bf16;

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "bf16",
        about: "The upper half of a 32-bit float: relative error at most 2^-8.",
        examples: &["'bf16'"],
        leaves_out: false,
    },
    tag: 3,
    bytes: None,
    words: |_| "bf16".to_owned(),
    read: |reader, expected| Ok(Box::new(Plane::<2>::read(reader, expected.shape.len(), expected.code)?)),
};

impl Quantizer for Bf16 {
    fn encode(&self, values: &[f32], _: Shape, code: Code, _: KeyedRng, out: &mut Vec<u8>) -> Size {
        let mut words = vec![0; values.len()];
        round(values, &mut words);
        let bound = encode_words(words.iter().map(|word| word.to_le_bytes()), code, out);
        Size::new(values.len() as u64 * 2, bound)
    }

    fn bits(&self) -> f64 {
        16.0
    }

    fn most_bytes(&self, len: usize) -> usize {
        len * 2
    }
}

#[inline(never)]
fn round(values: &[f32], words: &mut [u16]) {
    for (word, value) in words.iter_mut().zip(values) {
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
        *word = (rounded.min(LARGEST) | bits >> 16 & 0x8000) as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::laws::{corruption, heavy, round_trip, sizes};

    #[test]
    fn rounding_is_that_of_the_half_crate() {
        let rng = crate::rng::KeyedRng::new(1, 0);
        let values: Vec<f32> = (0..100_000)
            .map(|i| f32::from_bits(rng.bits(i) as u32))
            .filter(|value| value.is_finite())
            .collect();
        let mut words = vec![0; values.len()];
        round(&values, &mut words);
        for (value, word) in values.iter().zip(words) {
            let reference = ::half::bf16::from_f32(*value);
            if reference.is_finite() {
                assert_eq!(word, reference.to_bits(), "{value:e}");
            }
        }
    }

    #[test]
    fn errors_are_small_and_every_value_is_finite() {
        let mut values = heavy(3000, 1);
        values.extend([f32::MAX, -f32::MAX, f32::MIN_POSITIVE, 0.0, -0.0, 1e-45]);
        for code in [Code::Pack, Code::Rans] {
            let out = round_trip(QuantizeSpec::Bf16, &values, code, 0);
            for (value, out) in values.iter().zip(out) {
                let close = (value.abs() / 256.0).max(f32::MIN_POSITIVE / 256.0);
                assert!(out.is_finite() && ((value - out).abs() <= close || value.abs() == f32::MAX));
            }
        }
        sizes(QuantizeSpec::Bf16);
        corruption(QuantizeSpec::Bf16);
    }
}
