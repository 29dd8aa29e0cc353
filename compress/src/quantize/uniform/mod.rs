//! Evenly spaced levels between minus and plus a scale, with one scale per block of values.
//!
//! With `m = 2^(bits-1) - 1`, symbol `s` of a block with scale `c` decodes to `((s - m) / m) * c`, computed in `f32` in
//! that order; symbol `2m + 1` is unused. One bit has no zero: symbols 0 and 1 decode to `-c` and `c`.
//!
//! The scale is a bfloat16 (two bytes, the whole range of `f32`). It is the largest magnitude of the block, rounded up
//! so that no value is clipped; for one bit with nearest rounding it is the mean magnitude, which minimizes the error.
//!
//! Stochastic rounding takes the upper of the two nearest levels with the probability that makes it unbiased (QSGD,
//! Alistarh et al. 2017, section 3.1; the maximum norm is the practical variant). With the Euclidean norm, as in the
//! theory, the scale is the norm of the block, rounded up, and most values become zero. `E[(C(v) - v)^2] = (c/m)^2 f (1
//! - f)`, f the fraction of `m |v| / c`; with the Euclidean norm, omega = `min(n/m^2, sqrt(n)/m)`.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod levels;

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::code::method::Code;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::forms::rule::NumberOrRule;
use crate::layout::Shape;
use crate::quantize::method::{Entry, Quantizer, Size};
use crate::rng::KeyedRng;
use crate::rules::bits::{BitsRule, BitsSpec};

// The 16 bits of a scale cost 0.016 bits per value.
const DEFAULT_BLOCK: u32 = 1024;

/// How a value is rounded to a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// To the nearest level: minimizes the error.
    #[default]
    Nearest,
    /// At random to one of the two neighboring levels, without bias.
    Stochastic,
}

/// The norm that gives the scale of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// The largest magnitude: smaller error.
    #[default]
    Max,
    /// The Euclidean norm: most values become zero.
    L2,
}

impl Norm {
    fn is_max(&self) -> bool {
        *self == Self::Max
    }
}

/// Requested uniform quantization.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Uniform {
    bits: BitsSpec,
    rounding: Rounding,
    block: u32,
    #[serde(skip_serializing_if = "Norm::is_max")]
    norm: Norm,
}

impl Uniform {
    /// `bits` per value, one scale per `block` values.
    ///
    /// # Errors
    /// `Usage` unless bits are 1 to 8, and the block a power of two from 16 to 65536.
    pub fn new(bits: u32, rounding: Rounding, block: u32) -> Result<Self, Error> {
        BitsSpec::number(bits.into()).and_then(|bits| Self::of(bits, rounding, block))
    }

    fn of(bits: BitsSpec, rounding: Rounding, block: u32) -> Result<Self, Error> {
        if !is_block(block) {
            return Err(Error::Usage(format!(
                "a block must be a power of two from 16 to 65536, not {block}"
            )));
        }
        Ok(Self {
            bits,
            rounding,
            block,
            norm: Norm::Max,
        })
    }

    /// The same with this norm.
    ///
    /// # Errors
    /// `Usage` for the Euclidean norm with one bit (which a rule may choose) and nearest rounding, whose scale is the mean
    /// magnitude.
    pub fn with_norm(self, norm: Norm) -> Result<Self, Error> {
        let may_be_one = matches!(self.bits, BitsSpec::Fixed(1) | BitsSpec::Rule(_));
        if norm == Norm::L2 && may_be_one && self.rounding == Rounding::Nearest {
            return Err(Error::Usage(
                "the scale for one bit with nearest rounding is the mean magnitude; remove the norm or use stochastic rounding".to_owned(),
            ));
        }
        Ok(Self { norm, ..self })
    }

    /// Bits per value; with a rule, the most that it may choose.
    pub fn bits(&self) -> u32 {
        self.bits.most()
    }

    /// The rule that chooses the bits.
    pub fn rule(&self) -> Option<BitsRule> {
        match self.bits {
            BitsSpec::Rule(rule) => Some(rule),
            BitsSpec::Fixed(_) => None,
        }
    }

    /// The same with this number of bits, from 1 to 8.
    pub(crate) fn with_bits(self, bits: u32) -> Self {
        Self {
            bits: BitsSpec::Fixed(bits.clamp(1, 8)),
            ..self
        }
    }

    /// The rounding.
    pub fn rounding(&self) -> Rounding {
        self.rounding
    }

    /// Values per scale.
    pub fn block(&self) -> u32 {
        self.block
    }
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "uniform",
        about: "2^bits - 1 evenly spaced levels with one scale per block of values; two levels for one bit.",
        examples: &[
            "{ uniform = 1 }",
            "{ uniform = 4 }",
            "{ uniform = { bits = 2, rounding = 'stochastic', norm = 'l2', block = 64 } }",
        ],
        leaves_out: false,
    },
    tag: 2,
    bytes: Some(0..=0x67),
    words: |byte| format!("uniform {} bits, scale per {}", bits(byte), block(byte)),
    read: |reader, expected| {
        Ok(Box::new(decode::Plane::read(
            reader,
            expected.shape.len(),
            bits(expected.byte),
            block(expected.byte) as usize,
            expected.code,
        )?))
    },
};

/// Bits of a symbol, less one, are bits 0 to 2 of the parameter byte.
fn bits(byte: u8) -> u32 {
    u32::from(byte % 8) + 1
}

/// Values per scale (16 to 65536): bits 3 to 6 of the parameter byte hold the binary logarithm, less four.
fn block(byte: u8) -> u32 {
    16 << (byte >> 3)
}

impl Quantizer for Uniform {
    fn encode(&self, values: &[f32], _: Shape, code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size {
        self.encode_planes(values, code, rng, out)
    }

    fn byte(&self) -> u8 {
        (self.bits() - 1) as u8 | ((self.block.ilog2() - 4) as u8) << 3
    }

    fn bits(&self) -> f64 {
        f64::from(self.bits()) + 16.0 / f64::from(self.block)
    }

    fn most_bytes(&self, len: usize) -> usize {
        (len * self.bits() as usize).div_ceil(8) + len.div_ceil(self.block as usize) * 2
    }
}

fn is_block(block: u32) -> bool {
    block.is_power_of_two() && (16..=65_536).contains(&block)
}

impl<'de> Deserialize<'de> for Uniform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            bits: BitsSpec,
            #[serde(default)]
            rounding: Rounding,
            #[serde(default = "default_block")]
            block: u32,
            #[serde(default)]
            norm: Norm,
        }

        fn default_block() -> u32 {
            DEFAULT_BLOCK
        }

        struct BitsOrTable;

        impl<'de> Visitor<'de> for BitsOrTable {
            type Value = Uniform;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bits from 1 to 8, or { bits = .., rounding = .., block = .., norm = .. }")
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
                Uniform::of(raw.bits, raw.rounding, raw.block)
                    .and_then(|uniform| uniform.with_norm(raw.norm))
                    .map_err(serde::de::Error::custom)
            }
        }

        deserializer.deserialize_any(BitsOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::method::Code;
    use crate::quantize::method::ValuePlane;
    use crate::quantize::uniform::decode::Plane;
    use crate::quantize::uniform::levels::middle;
    use crate::quantize::{QuantizeSpec, laws};
    use crate::rng::KeyedRng;
    use crate::wire::Reader;

    fn decode(uniform: Uniform, values: &[f32], code: Code, seed: u64) -> Vec<f32> {
        let mut bytes = Vec::new();
        uniform.encode_planes(values, code, KeyedRng::new(seed, 0), &mut bytes);
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
        let rng = KeyedRng::new(2, 0);
        let values: Vec<f32> = (0..2049).map(|i| (rng.unit(i) - 0.5) * (i / 100) as f32).collect();
        for (bits, code) in (2..=8).flat_map(|bits| [(bits, Code::Pack), (bits, Code::Rans)]) {
            let out = decode(Uniform::new(bits, Rounding::Nearest, 64).unwrap(), &values, code, 0);
            for (values, out) in values.chunks(64).zip(out.chunks(64)) {
                let step = crate::finite::largest(values) * 1.01 / f32::from(middle(bits));
                assert!(
                    values
                        .iter()
                        .zip(out)
                        .all(|(value, out)| (value - out).abs() <= step / 2.0)
                );
            }
        }
    }

    #[test]
    fn one_bit_is_the_sign_and_the_mean_magnitude() {
        let values = [3.0, -1.0, 2.0, -2.0];
        let out = decode(
            Uniform::new(1, Rounding::Nearest, 1024).unwrap(),
            &values,
            Code::Pack,
            0,
        );
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
                mean.iter_mut()
                    .zip(out)
                    .for_each(|(mean, out)| *mean += f64::from(out) / f64::from(DRAWS));
            }
            let step = if bits == 1 { 1.8 } else { 0.91 / f64::from(middle(bits)) };
            let tolerance = 5.0 * step / 2.0 / f64::from(DRAWS).sqrt();
            for (mean, value) in mean.iter().zip(values) {
                assert!(
                    (mean - f64::from(value)).abs() < tolerance,
                    "{bits} bits: {mean} for {value}"
                );
            }
        }
    }

    #[test]
    fn the_euclidean_norm_has_no_bias_and_the_error_of_the_formula() {
        for bits in [1, 2, 3, 4] {
            let uniform = Uniform::new(bits, Rounding::Stochastic, 16).unwrap();
            let uniform = QuantizeSpec::Uniform(uniform.with_norm(Norm::L2).unwrap());
            // The norm is 5, which bfloat16 represents exactly.
            let values = [3.0, -4.0, 0.0, 0.0];
            let levels = if bits == 1 { 1.0 } else { f64::from(middle(bits)) };
            laws::unbiased(uniform, &values, |i| {
                let place = f64::from(values[i]) / 5.0 * levels;
                match bits {
                    1 => 25.0 - f64::from(values[i]).powi(2),
                    _ => (place - place.floor()) * (place.ceil() - place) * (5.0 / levels).powi(2),
                }
            });
            laws::sizes(uniform);
        }
    }

    #[test]
    fn levels_are_beside_the_value_and_a_block_of_zeros_is_zeros() {
        let values = laws::heavy(1000, 3);
        for norm in [Norm::Max, Norm::L2] {
            let uniform = Uniform::new(4, Rounding::Stochastic, 64)
                .unwrap()
                .with_norm(norm)
                .unwrap();
            let out = decode(uniform, &values, Code::Rans, 4);
            for (values, out) in values.chunks(64).zip(out.chunks(64)) {
                let scale = match norm {
                    Norm::Max => crate::finite::largest(values),
                    Norm::L2 => laws::dot(values, values).sqrt() as f32,
                };
                let step = scale * 1.01 / f32::from(middle(4));
                assert!(values.iter().zip(out).all(|(value, out)| (value - out).abs() <= step));
            }
            assert_eq!(decode(uniform, &[0.0; 65], Code::Pack, 1), [0.0; 65]);
        }
    }

    #[test]
    fn extreme_values_stay_finite() {
        for scale in [f32::MAX, 1e38, 1e-35, 1e-38, 1e-45] {
            for bits in 1..=8 {
                for rounding in [Rounding::Nearest, Rounding::Stochastic] {
                    let values = [scale, -scale, scale / 2.0, 0.0];
                    let out = decode(Uniform::new(bits, rounding, 16).unwrap(), &values, Code::Pack, 1);
                    assert!(
                        out.iter().all(|value| value.abs() <= scale * 1.01),
                        "{scale:e} {bits} {out:?}"
                    );
                }
            }
        }
    }
}
