//! 1 to 4 bits per value: the nearest of a few levels that are fitted to the values of the tensor (Lloyd 1982).
//!
//! The fit begins with one class and splits each class at its mean, once per bit: of values on both sides of zero the
//! first bit is about the sign and the second large or small. A few iterations of Lloyd's algorithm follow. Each level is
//! the mean of its class, which makes it a projection, `<v, C(v)> = ||C(v)||^2`, and biased: for error feedback. After
//! top-k this is SparseLoCo's 2-bit quantization (arXiv 2508.15706), whose levels are the means of bins of equal width.
//!
//! The planes are the levels in ascending order as binary32 and a symbol plane of their numbers.

use serde::{Deserialize, Serialize};

use crate::code::method::Code;
use crate::code::symbols::encode_symbols;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::leveled::{LeveledPlane, MOST_LEVELS};
use crate::quantize::method::{Entry, Quantizer, Size};
use crate::rng::KeyedRng;
use crate::wire::{Reader, Writer};

// Iterations after the splits. More gain less than a hundredth of the error.
const ITERATIONS: usize = 4;
// A symbol plane finds its value in a table of `MOST_LEVELS`, 2^4.
const MOST_BITS: u32 = 4;
// Value of the parameter byte for one bit; smaller ones with this tag are ternary and sign.
const FIRST_BYTE: u8 = 3;

/// Bits per value, 1 to 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Codebook(u32);

impl Codebook {
    /// A codebook of `2^bits` levels.
    ///
    /// # Errors
    /// `Usage` unless bits are 1 to 4.
    pub fn new(bits: u32) -> Result<Self, Error> {
        if !(1..=MOST_BITS).contains(&bits) {
            return Err(Error::Usage(format!(
                "codebook takes 1 to {MOST_BITS} bits, not {bits}"
            )));
        }
        Ok(Self(bits))
    }

    /// Bits per value.
    pub fn bits(self) -> u32 {
        self.0
    }

    fn levels(self) -> usize {
        1 << self.0
    }
}

impl TryFrom<u32> for Codebook {
    type Error = Error;

    fn try_from(bits: u32) -> Result<Self, Error> {
        Self::new(bits)
    }
}

impl From<Codebook> for u32 {
    fn from(codebook: Codebook) -> Self {
        codebook.0
    }
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "codebook",
        about: "The nearest of 2 to 16 levels that are fitted to the values of the tensor.",
        examples: &["{ codebook = 2 }"],
        leaves_out: false,
    },
    tag: 7,
    bytes: Some(FIRST_BYTE..=FIRST_BYTE + MOST_BITS as u8 - 1),
    words: |byte| format!("codebook of {} bits", 1 + byte.saturating_sub(FIRST_BYTE)),
    read: |reader, expected| {
        let bits = 1 + u32::from(expected.byte.saturating_sub(FIRST_BYTE));
        Ok(Box::new(read(reader, expected.shape.len(), bits, expected.code)?))
    },
};

impl Quantizer for Codebook {
    fn encode(&self, values: &[f32], _: Shape, code: Code, _: KeyedRng, out: &mut Vec<u8>) -> Size {
        let mut symbols = vec![0; values.len()];
        let levels = fit(values, *self, &mut symbols);
        Writer::new(out).f32s(&levels[..self.levels()]);
        let scales = 4 * self.levels() as u64;
        let bound = scales as f64 + encode_symbols(&symbols, self.0, code, out);
        Size::new(scales + (values.len() as u64 * u64::from(self.0)).div_ceil(8), bound)
    }

    fn byte(&self) -> u8 {
        FIRST_BYTE + self.0 as u8 - 1
    }

    fn bits(&self) -> f64 {
        f64::from(self.0)
    }

    fn most_bytes(&self, len: usize) -> usize {
        4 * self.levels() + (len * self.0 as usize).div_ceil(8)
    }
}

/// Fills `symbols` with the class of each value; returns the mean of each class, in ascending order.
fn fit(values: &[f32], codebook: Codebook, symbols: &mut [u8]) -> [f32; MOST_LEVELS] {
    let mut levels = [0.0; MOST_LEVELS];
    means(values, symbols, &mut levels[..1]);
    for bit in 0..codebook.0 {
        split(values, &levels, symbols);
        let classes = 2 << bit;
        // An empty half has the level of the class that was split.
        for class in (0..classes).rev() {
            levels[class] = levels[class / 2];
        }
        means(values, symbols, &mut levels[..classes]);
    }
    for _ in 0..ITERATIONS {
        nearest(values, &levels[..codebook.levels()], symbols);
        means(values, symbols, &mut levels[..codebook.levels()]);
    }
    levels
}

/// Splits each class at its level: symbol s becomes 2s below it, else 2s + 1.
#[inline(never)]
fn split(values: &[f32], levels: &[f32; MOST_LEVELS], symbols: &mut [u8]) {
    for (symbol, value) in symbols.iter_mut().zip(values) {
        let level = levels[usize::from(*symbol) % MOST_LEVELS];
        *symbol = 2 * *symbol + u8::from(*value >= level);
    }
}

/// The class of each value is that of the nearest level. `levels` are in ascending order.
#[inline(never)]
fn nearest(values: &[f32], levels: &[f32], symbols: &mut [u8]) {
    let mut middles = [f32::INFINITY; MOST_LEVELS];
    for (middle, pair) in middles.iter_mut().zip(levels.windows(2)) {
        *middle = ((f64::from(pair[0]) + f64::from(pair[1])) / 2.0) as f32;
    }
    let middles = &middles[..levels.len() - 1];
    for (symbol, value) in symbols.iter_mut().zip(values) {
        *symbol = middles.iter().map(|middle| u8::from(value >= middle)).sum();
    }
}

/// Sets each level to the mean of its class; that of an empty class stays.
#[inline(never)]
fn means(values: &[f32], symbols: &[u8], levels: &mut [f32]) {
    let mut sums = [0.0f64; MOST_LEVELS];
    let mut counts = [0usize; MOST_LEVELS];
    for (symbol, value) in symbols.iter().zip(values) {
        let class = usize::from(*symbol) % MOST_LEVELS;
        sums[class] += f64::from(*value);
        counts[class] += 1;
    }
    for ((level, sum), count) in levels.iter_mut().zip(sums).zip(counts) {
        if count > 0 {
            *level = (sum / count as f64) as f32;
        }
    }
}

/// Range: `bits` 1 to 4.
fn read<'a>(reader: &mut Reader<'a>, count: usize, bits: u32, code: Code) -> Result<LeveledPlane<'a>, Error> {
    let mut levels = [0.0; MOST_LEVELS];
    let used = 1 << bits;
    for (level, found) in levels.iter_mut().zip(reader.f32s(used, "codebook levels")?) {
        if !found.is_finite() {
            return Err(Error::NotFinite("codebook level".to_owned()));
        }
        *level = found;
    }
    LeveledPlane::read(reader, count, code, 4 * used, &levels[..used])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::laws::{corruption, dot, gaussian, heavy, round_trip, sizes, squared_error};
    use crate::quantize::sign::Sign;

    fn spec(bits: u32) -> QuantizeSpec {
        QuantizeSpec::Codebook(Codebook::new(bits).unwrap())
    }

    #[test]
    fn levels_are_the_means_of_their_classes() {
        let values = [1.0, -1.0, 1.2, -9.0, 8.0, -0.8, -9.0, 8.4];
        let out = round_trip(spec(2), &values, Code::Pack, 0);
        let [small, large] = [1.1, 8.2].map(|mean: f32| mean);
        assert_eq!(out, [small, -0.9, small, -9.0, large, -0.9, -9.0, large]);
        // Fewer different values than levels are exact.
        let few = [3.0, -2.0, 3.0, 0.5];
        assert_eq!(round_trip(spec(2), &few, Code::Pack, 0), few);
        assert_eq!(round_trip(spec(4), &[7.0], Code::Pack, 0), [7.0]);
    }

    #[test]
    fn a_codebook_is_a_projection_and_each_bit_lowers_the_error() {
        for values in [heavy(5000, 4), gaussian(5000, 4)] {
            let norm = dot(&values, &values);
            let split = round_trip(QuantizeSpec::Sign(Sign::Split), &values, Code::Pack, 0);
            let mut before = squared_error(&values, &split) * 1.001;
            for bits in 1..=MOST_BITS {
                let out = round_trip(spec(bits), &values, Code::Rans, 0);
                let (cross, square) = (dot(&values, &out), dot(&out, &out));
                assert!((cross - square).abs() < 1e-5 * square, "{cross} {square}");
                let error = squared_error(&values, &out);
                assert!(error < before, "{bits} bits: {} after {}", error / norm, before / norm);
                before = error;
            }
        }
    }

    /// The least errors of 2, 4, 8 and 16 levels for a Gaussian are 0.363, 0.117, 0.0345 and 0.0095 (Max 1960).
    #[test]
    fn the_error_on_gaussian_values_is_near_the_least() {
        let values = gaussian(60_000, 2);
        let norm = dot(&values, &values);
        for (bits, least) in [(1, 0.3634), (2, 0.1175), (3, 0.03455), (4, 0.0095)] {
            let error = squared_error(&values, &round_trip(spec(bits), &values, Code::Pack, 0)) / norm;
            assert!(error < 1.3 * least && error > 0.97 * least, "{bits} bits: {error}");
        }
    }

    #[test]
    fn levels_that_are_not_finite_are_refused() {
        let read = |level: f32| {
            let bytes = [[0; 4], level.to_le_bytes()].concat();
            super::read(&mut Reader::new(&[bytes, vec![1]].concat()), 1, 1, Code::Pack).map(drop)
        };
        assert_eq!(read(-3.0), Ok(()));
        assert!(matches!(read(f32::NAN), Err(Error::NotFinite(_))));
        for bits in 1..=MOST_BITS {
            sizes(spec(bits));
            corruption(spec(bits));
        }
    }
}
