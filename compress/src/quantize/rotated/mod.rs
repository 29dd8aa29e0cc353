//! 1 to 4 bits per value after a random rotation, after which the coordinates of any vector are nearly Gaussian (DRIVE,
//! Vargaftik et al. 2021; EDEN, Vargaftik et al. 2022).
//!
//! The values are split into pieces whose length is a power of two: as many pieces of 65536 as fit, then one piece for
//! each binary digit of the remainder, longest first. For a piece x of n values, `y = H D x`, with H the Hadamard
//! matrix over `sqrt(n)` and D random signs derived from the seed of the frame. The levels c are the Lloyd-Max
//! centroids of the unit Gaussian nearest to `y sqrt(n) / ||x||`, and `C(x) = S D H c`.
//!
//! Least error: `S = <c, y> / ||c||^2`; `1 - delta` is about 0.363, 0.117, 0.0345, 0.0095 for 1 to 4 bits (DRIVE,
//! theorem 1). Unbiased (exactly for a uniform rotation, nearly for a Hadamard rotation): `S = ||x||^2 / <c, y>`, so
//! that `<x, C(x)> = ||x||^2`; omega is about 0.571, 0.133, 0.0358, 0.0096 (EDEN, section 4).
//!
//! The planes are `S / sqrt(n)` of each piece (a word plane of binary32) and a symbol plane of the levels in ascending
//! order.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod hadamard;
pub(crate) mod pieces;

use serde::{Deserialize, Serialize};

use crate::code::method::Code;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::short::{Short, short_forms};
use crate::layout::Shape;
use crate::quantize::method::{Entry, Quantizer, Size};
use crate::quantize::rotated::pieces::LONGEST;
use crate::rng::KeyedRng;

/// The scale S of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Minimizes the error; use with error feedback.
    #[default]
    Least,
    /// Makes the mean over many clients unbiased; use without error feedback.
    Unbiased,
}

/// Requested quantization after a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotated {
    bits: u32,
    scale: Scale,
}

impl Rotated {
    /// `bits` per value.
    ///
    /// # Errors
    /// `Usage` unless bits are 1 to 4.
    pub fn new(bits: u32, scale: Scale) -> Result<Self, Error> {
        if !(1..=4).contains(&bits) {
            return Err(Error::Usage(format!("rotated takes 1 to 4 bits, not {bits}")));
        }
        Ok(Self { bits, scale })
    }

    /// Bits per value.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The scale of a piece.
    pub fn scale(&self) -> Scale {
        self.scale
    }
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "rotated",
        about: "1 to 4 bits per value after a random rotation derived from the frame's seed (DRIVE, EDEN).",
        examples: &["{ rotated = 1 }", "{ rotated = { bits = 4, scale = 'unbiased' } }"],
        leaves_out: false,
    },
    tag: 6,
    bytes: Some(0..=3),
    words: |byte| format!("rotated {} bits", byte + 1),
    read: |reader, expected| {
        Ok(Box::new(decode::Plane::read(
            reader,
            expected.shape.len(),
            u32::from(expected.byte) + 1,
            expected.code,
            expected.rng,
        )?))
    },
};

impl Quantizer for Rotated {
    fn encode(&self, values: &[f32], _: Shape, code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size {
        self.encode_planes(values, code, rng, out)
    }

    fn byte(&self) -> u8 {
        (self.bits - 1) as u8
    }

    fn bits(&self) -> f64 {
        f64::from(self.bits)
    }

    fn most_bytes(&self, len: usize) -> usize {
        // One scale per piece of 65536, and one per binary digit of the remainder.
        (len * self.bits as usize).div_ceil(8) + (len / LONGEST + 16) * 4
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotatedTable {
    bits: u32,
    #[serde(default)]
    scale: Scale,
}

short_forms!(Rotated);

impl Short for Rotated {
    const FORMS: &'static str = "a number of bits from 1 to 4, or { bits = .., scale = .. }";
    type Table = RotatedTable;

    fn from_number(number: f64) -> Result<Self, Error> {
        let bits = if number.fract() == 0.0 { number as u32 } else { 0 };
        Self::new(bits, Scale::default()).map_err(|_| Error::Usage(format!("rotated takes 1 to 4 bits, not {number}")))
    }

    fn from_table(RotatedTable { bits, scale }: RotatedTable) -> Result<Self, Error> {
        Self::new(bits, scale)
    }

    fn parts(&self) -> Result<f64, RotatedTable> {
        let Self { bits, scale } = *self;
        if scale == Scale::default() {
            return Ok(f64::from(bits));
        }
        Err(RotatedTable { bits, scale })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::method::Code;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::laws::{corruption, dot, gaussian, heavy, round_trip, sizes, squared_error};
    use crate::quantize::rotated::pieces::{Signs, piece, pieces};

    fn spec(bits: u32, scale: Scale) -> QuantizeSpec {
        QuantizeSpec::Rotated(Rotated::new(bits, scale).unwrap())
    }

    #[test]
    fn pieces_cover_every_length() {
        for len in [1, 2, 3, 65_535, 65_536, 65_537, 200_000, 1_000_003] {
            let (mut left, mut count) = (len, 0);
            while left > 0 {
                left -= piece(left);
                count += 1;
            }
            assert_eq!(count, pieces(len));
        }
    }

    #[test]
    fn one_bit_of_the_worked_example() {
        // The first seed with the signs (1, -1, 1, 1).
        let word = |seed: u64| Signs::new(KeyedRng::new(seed, 0)).0.bits(0) % 16;
        let seed = (1..1000).find(|&seed| word(seed) == 0b0010).unwrap();
        let values = [1.0, 2.0, -3.0, 4.0];
        let close = |out: Vec<f32>, expected: f32| {
            assert!(out[..3].iter().all(|value| value.abs() < 1e-6), "{out:?}");
            assert!((out[3] - expected).abs() < 1e-5, "{out:?}");
        };
        close(round_trip(spec(1, Scale::Unbiased), &values, Code::Pack, seed), 7.5);
        close(round_trip(spec(1, Scale::Least), &values, Code::Pack, seed), 4.0);
        assert!((14.0f64 / 30.0 - 0.466_667).abs() < 1e-6);
    }

    #[test]
    fn the_error_is_that_of_the_theory() {
        let least = [0.3634, 0.1175, 0.03455, 0.0095];
        let unbiased = [0.5708, 0.1331, 0.03578, 0.00959];
        for (values, seed) in [(heavy(32_768, 3), 1), (gaussian(32_768, 3), 2)] {
            for bits in 1..=4 {
                for (scale, expected) in [(Scale::Least, least), (Scale::Unbiased, unbiased)] {
                    let out = round_trip(spec(bits, scale), &values, Code::Pack, seed);
                    let error = squared_error(&values, &out) / dot(&values, &values);
                    let expected = expected[bits as usize - 1];
                    assert!((error / expected - 1.0).abs() < 0.05, "{bits} {scale:?}: {error}");
                }
            }
        }
    }

    #[test]
    fn both_scales_keep_their_identity_in_every_draw() {
        for len in [1, 2, 64, 1024] {
            let values = heavy(len, 9);
            for (bits, seed) in (1..=4).flat_map(|bits| (1..20).map(move |seed| (bits, seed))) {
                let out = round_trip(spec(bits, Scale::Unbiased), &values, Code::Pack, seed);
                let norm = dot(&values, &values);
                assert!((dot(&values, &out) / norm - 1.0).abs() < 1e-5);
                let out = round_trip(spec(bits, Scale::Least), &values, Code::Pack, seed);
                assert!(
                    (dot(&values, &out) / dot(&out, &out) - 1.0).abs() < 1e-5,
                    "not a projection"
                );
            }
        }
    }

    #[test]
    fn the_mean_over_draws_is_the_value() {
        const DRAWS: u32 = 4000;
        let values = gaussian(256, 1);
        for (bits, error) in [(1, 0.5708), (3, 0.03578)] {
            let mut mean = vec![0.0; values.len()];
            for seed in 0..DRAWS {
                let out = round_trip(spec(bits, Scale::Unbiased), &values, Code::Pack, u64::from(seed) + 1);
                mean.iter_mut()
                    .zip(out)
                    .for_each(|(mean, out)| *mean += f64::from(out) / f64::from(DRAWS));
            }
            let deviation = (error * dot(&values, &values) / 256.0f64).sqrt();
            for (mean, &value) in mean.iter().zip(&values) {
                let off = (mean - f64::from(value)).abs();
                assert!(
                    off <= 5.0 * deviation / f64::from(DRAWS).sqrt(),
                    "{bits}: {mean} for {value}"
                );
            }
        }
    }

    #[test]
    fn extremes_stay_finite_and_damage_is_noticed() {
        for (bits, scale) in [
            (1, Scale::Unbiased),
            (1, Scale::Least),
            (4, Scale::Unbiased),
            (3, Scale::Least),
        ] {
            sizes(spec(bits, scale));
            corruption(spec(bits, scale));
        }
        let huge: Vec<f32> = heavy(5000, 1).iter().map(|value| value.signum() * f32::MAX).collect();
        for bits in 1..=4 {
            let out = round_trip(spec(bits, Scale::Unbiased), &huge, Code::Pack, 3);
            assert!(out.iter().all(|value| value.is_finite()));
        }
        let small: Vec<f32> = gaussian(1024, 1).iter().map(|value| value * 1e-38).collect();
        let out = round_trip(spec(4, Scale::Least), &small, Code::Pack, 1);
        assert!(squared_error(&small, &out) < 0.011 * dot(&small, &small));
    }
}
