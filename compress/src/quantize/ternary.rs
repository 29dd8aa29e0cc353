//! Ternary values: minus a scale, zero, or plus the scale.
//!
//! Nearest (STC, Sattler et al. 2019, algorithm 1, after top-k): each of the k nonzero values becomes `sign * mu`,
//! where `mu` is their mean magnitude. A projection: `<v, C(v)> = k mu^2 = ||C(v)||^2`, `delta = k mu^2 / ||v||^2`.
//!
//! Stochastic (TernGrad, Wen et al. 2017, equations 1 to 3 and 11): `sign * s` with probability `|v| / s`, else zero,
//! where `s` is the largest magnitude. Unbiased, with `E[(C(v) - v)^2] = |v| (s - |v|)`: omega = `s ||v||_1 / ||v||^2 -
//! 1`. A clip at c standard deviations (computed about zero; identical under the Gaussian model of the paper) reduces
//! `s` and the variance, but biases the clipped values.
//!
//! The planes are the scale as binary32 and a symbol plane of width 2 in which 0 is minus, 1 zero and 2 plus.

use serde::{Deserialize, Deserializer, Serialize};

use crate::code::method::Code;
use crate::code::symbols::encode_symbols;
use crate::error::Error;
use crate::finite::largest;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::leveled::LeveledPlane;
use crate::quantize::method::{Entry, Quantizer, Size};
use crate::quantize::numbers::{read_scale, root_mean_square};
use crate::quantize::uniform::Rounding;
use crate::rng::KeyedRng;
use crate::simd::vectorized;
use crate::wire::{Reader, Writer};

/// Requested ternary quantization.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Ternary {
    rounding: Rounding,
    #[serde(skip_serializing_if = "Option::is_none")]
    clip: Option<f64>,
}

impl Ternary {
    /// Rounds each nonzero value to the mean magnitude of the nonzero values.
    pub fn nearest() -> Self {
        Self::default()
    }

    /// Rounds each value at random to zero or the largest magnitude, without bias. With `clip`, magnitudes are first
    /// clipped at `clip` standard deviations.
    ///
    /// # Errors
    /// `Usage` unless `clip` is positive and finite.
    pub fn stochastic(clip: Option<f64>) -> Result<Self, Error> {
        match clip {
            Some(clip) if !(clip > 0.0 && clip.is_finite()) => {
                Err(Error::Usage(format!("a clip must be positive and finite, not {clip}")))
            }
            _ => Ok(Self {
                rounding: Rounding::Stochastic,
                clip,
            }),
        }
    }

    fn scale(self, values: &[f32]) -> f32 {
        let largest = largest(values);
        let Some(clip) = self.clip else {
            return largest;
        };
        largest.min((clip * root_mean_square(values)) as f32)
    }
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "ternary",
        about: "Three levels: minus a scale, zero, plus the scale.",
        examples: &["'ternary'", "{ ternary = { rounding = 'stochastic', clip = 2.5 } }"],
        leaves_out: true,
    },
    tag: 7,
    bytes: Some(0..=0),
    words: |_| "ternary".to_owned(),
    read: |reader, expected| Ok(Box::new(read(reader, expected.shape.len(), expected.code)?)),
};

impl Quantizer for Ternary {
    fn without_numbers() -> Option<Self> {
        Some(Self::default())
    }

    fn encode(&self, values: &[f32], _: Shape, code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size {
        let mut symbols = vec![1; values.len()];
        let scale = match self.rounding {
            Rounding::Nearest => {
                let (sum, count) = signs(values, &mut symbols);
                (sum / count.max(1) as f64) as f32
            }
            Rounding::Stochastic => {
                let scale = self.scale(values);
                if scale > 0.0 {
                    chances(values, scale, rng, &mut symbols);
                }
                scale
            }
        };
        Writer::new(out).f32s(&[scale]);
        let bound = 4.0 + encode_symbols(&symbols, 2, code, out);
        Size::new(4 + (values.len() as u64 * 2).div_ceil(8), bound)
    }

    fn bits(&self) -> f64 {
        1.0
    }

    fn most_bytes(&self, len: usize) -> usize {
        4 + (len * 2).div_ceil(8)
    }
}

/// Fills `symbols` by sign; returns the sum of the magnitudes and the number of nonzero values.
#[inline(never)]
fn signs(values: &[f32], symbols: &mut [u8]) -> (f64, usize) {
    let mut sums = [0.0f64; 4];
    let mut zeros = [0usize; 4];
    for (values, symbols) in values.chunks(4).zip(symbols.chunks_mut(4)) {
        for (((value, symbol), sum), zeros) in values.iter().zip(symbols).zip(&mut sums).zip(&mut zeros) {
            *symbol = 1 + u8::from(*value > 0.0) - u8::from(*value < 0.0);
            *sum += f64::from(value.abs());
            *zeros += usize::from(*value == 0.0);
        }
    }
    (sums.iter().sum(), values.len() - zeros.iter().sum::<usize>())
}

fn chances(values: &[f32], scale: f32, rng: KeyedRng, symbols: &mut [u8]) {
    vectorized(
        #[inline(always)]
        || {
            for (at, (symbol, value)) in symbols.iter_mut().zip(values).enumerate() {
                let kept = u8::from(rng.unit(at) < value.abs() / scale);
                *symbol = if *value < 0.0 { 1 - kept } else { 1 + kept };
            }
        },
    );
}

fn read<'a>(reader: &mut Reader<'a>, count: usize, code: Code) -> Result<LeveledPlane<'a>, Error> {
    let scale = read_scale(reader, "ternary scale")?;
    LeveledPlane::read(reader, count, code, 4, &[-scale, 0.0, scale])
}

impl<'de> Deserialize<'de> for Ternary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, expecting = "{ rounding = .., clip = .. }")]
        struct Raw {
            #[serde(default)]
            rounding: Rounding,
            clip: Option<f64>,
        }

        let raw = Raw::deserialize(deserializer)?;
        match (raw.rounding, raw.clip) {
            (Rounding::Nearest, None) => Ok(Self::nearest()),
            (Rounding::Nearest, Some(_)) => Err(serde::de::Error::custom("a clip requires stochastic rounding")),
            (Rounding::Stochastic, clip) => Self::stochastic(clip).map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::laws::{corruption, dot, heavy, round_trip, sizes, unbiased};
    use crate::quantize::method::ValuePlane as _;

    const NEAREST: QuantizeSpec = QuantizeSpec::Ternary(Ternary {
        rounding: Rounding::Nearest,
        clip: None,
    });

    fn stochastic(clip: Option<f64>) -> QuantizeSpec {
        QuantizeSpec::Ternary(Ternary::stochastic(clip).unwrap())
    }

    #[test]
    fn sparse_ternary_compression_of_the_worked_example() {
        // The output of top-2 of [.5, -.1, .3, -.9, .05, 0, .2, -.4].
        let kept = [0.5, 0.0, 0.0, -0.9];
        let out = round_trip(NEAREST, &kept, Code::Pack, 0);
        assert_eq!(out, [0.7, 0.0, 0.0, -0.7]);
        let norm: f64 = [0.5f64, 0.1, 0.3, 0.9, 0.05, 0.2, 0.4].iter().map(|v| v * v).sum();
        assert!(((norm - 2.0 * 0.49) / norm - 0.280_734).abs() < 1e-6);
    }

    #[test]
    fn the_nearest_is_a_projection_onto_two_magnitudes() {
        let mut values = heavy(3000, 8);
        values.iter_mut().step_by(3).for_each(|value| *value = 0.0);
        let out = round_trip(NEAREST, &values, Code::Rans, 0);
        let (cross, norm) = (dot(&values, &out), dot(&out, &out));
        assert!((cross - norm).abs() < 1e-5 * norm);
        assert!(out.iter().all(|value| *value == 0.0 || value.abs() == out[1].abs()));
    }

    #[test]
    fn chance_has_no_bias_and_the_error_of_the_formula() {
        let values = [0.9, -0.5, 0.3, -0.1, 0.05, 0.0, -0.02, 0.6];
        let error = |i: usize| f64::from(values[i]).abs() * (f64::from(0.9f32) - f64::from(values[i]).abs());
        unbiased(stochastic(None), &values, error);
    }

    #[test]
    fn a_clip_bounds_the_scale() {
        let mut values = vec![0.1; 999];
        values.push(100.0);
        let out = round_trip(stochastic(Some(2.5)), &values, Code::Pack, 2);
        let rms = root_mean_square(&values);
        assert!((f64::from(out[999]) - 2.5 * rms).abs() < 1e-4 * rms);
        assert_eq!(round_trip(stochastic(Some(2.5)), &[3.0], Code::Pack, 0), [3.0]);
        assert_eq!(round_trip(stochastic(None), &[0.0, 0.0], Code::Pack, 0), [0.0, 0.0]);
    }

    #[test]
    fn the_fourth_symbol_is_corrupt_and_so_is_a_bad_scale() {
        let read = |bytes: &[u8]| {
            let plane = super::read(&mut Reader::new(bytes), 1, Code::Pack)?;
            plane.open()?.read(&mut [0.0])
        };
        assert_eq!(read(&[0, 0, 128, 63, 2]), Ok(()));
        assert!(matches!(read(&[0, 0, 128, 63, 3]), Err(Error::Corrupt { .. })));
        assert!(matches!(read(&[0, 0, 128, 191, 2]), Err(Error::Corrupt { .. })));
        assert!(matches!(read(&[0, 0, 128, 127, 2]), Err(Error::NotFinite(_))));
        for spec in [NEAREST, stochastic(None), stochastic(Some(2.5))] {
            sizes(spec);
            corruption(spec);
        }
    }
}
