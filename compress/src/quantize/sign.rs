//! One bit per value: the sign, with one magnitude for both signs or one for each. Zero counts as plus.
//!
//! Shared (EF-signSGD, Karimireddy et al. 2019, algorithm 1): `C(v) = ||v||_1 / n * sign(v)`. Split (1-bit SGD, Seide
//! et al. 2014): the mean of each class, which minimizes the error. Both are projections, `<v, C(v)> = ||C(v)||^2`,
//! with `delta >= ||v||_1^2 / (n ||v||^2)`. They are biased and therefore meant for error feedback.
//!
//! The planes are the magnitude as binary32 (split: that of minus, then that of plus) and a symbol plane of width 1 in
//! which 1 is plus. The magnitude of an empty class is zero.

use serde::{Deserialize, Serialize};

use crate::code::method::Code;
use crate::code::symbols::encode_symbols;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::leveled::LeveledPlane;
use crate::quantize::method::{Entry, Quantizer, Size};
use crate::quantize::numbers::read_scale;
use crate::rng::KeyedRng;
use crate::wire::Writer;

/// Whether both signs share one magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// The mean magnitude of all values.
    #[default]
    Shared,
    /// For each sign, the mean magnitude of its values.
    Split,
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "sign",
        about: "One bit per value: minus or plus the mean magnitude, of all values or of the values of the same sign.",
        examples: &["'sign'", "{ sign = 'split' }"],
        leaves_out: false,
    },
    tag: 7,
    bytes: Some(1..=2),
    words: |byte| match byte {
        1 => "sign".to_owned(),
        _ => "sign, one magnitude per sign".to_owned(),
    },
    read: |reader, expected| {
        let minus = read_scale(reader, "sign scale")?;
        let (plus, bytes) = match expected.byte {
            2 => (read_scale(reader, "sign scale")?, 8),
            _ => (minus, 4),
        };
        let levels = [-minus, plus];
        Ok(Box::new(LeveledPlane::read(
            reader,
            expected.shape.len(),
            expected.code,
            bytes,
            &levels,
        )?))
    },
};

impl Quantizer for Sign {
    fn without_numbers() -> Option<Self> {
        Some(Self::default())
    }

    fn encode(&self, values: &[f32], _: Shape, code: Code, _: KeyedRng, out: &mut Vec<u8>) -> Size {
        let mut symbols = vec![0; values.len()];
        let [minus, plus] = classify(values, &mut symbols);
        let pluses = symbols.iter().map(|&symbol| usize::from(symbol)).sum::<usize>();
        let mean = |sum: f64, count: usize| (sum / count.max(1) as f64) as f32;
        let mut writer = Writer::new(out);
        let scales = match self {
            Self::Shared => {
                writer.f32s(&[mean(minus + plus, values.len())]);
                4
            }
            Self::Split => {
                writer.f32s(&[mean(minus, values.len() - pluses), mean(plus, pluses)]);
                8
            }
        };
        let bound = scales as f64 + encode_symbols(&symbols, 1, code, out);
        Size::new(scales + (values.len() as u64).div_ceil(8), bound)
    }

    fn byte(&self) -> u8 {
        1 + u8::from(*self == Self::Split)
    }

    fn bits(&self) -> f64 {
        1.0
    }

    fn most_bytes(&self, len: usize) -> usize {
        8 + len.div_ceil(8)
    }
}

/// Fills `symbols`; returns the sums of the magnitudes of negative and of other values.
#[inline(never)]
fn classify(values: &[f32], symbols: &mut [u8]) -> [f64; 2] {
    let mut net = [0.0f64; 4];
    let mut gross = [0.0f64; 4];
    for (values, symbols) in values.chunks(4).zip(symbols.chunks_mut(4)) {
        for (((value, symbol), net), gross) in values.iter().zip(symbols).zip(&mut net).zip(&mut gross) {
            *symbol = u8::from(*value >= 0.0);
            *net += f64::from(*value);
            *gross += f64::from(value.abs());
        }
    }
    let net = net.iter().sum::<f64>();
    let gross = gross.iter().sum::<f64>();
    [(gross - net).max(0.0) / 2.0, (gross + net).max(0.0) / 2.0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::laws::{corruption, dot, heavy, round_trip, sizes};

    #[test]
    fn signs_take_the_mean_magnitudes() {
        let values = [3.0, -1.0, 2.0, 0.0];
        let decode = |sign| round_trip(QuantizeSpec::Sign(sign), &values, Code::Pack, 0);
        assert_eq!(decode(Sign::Shared), [1.5, -1.5, 1.5, 1.5]);
        let third = (5.0f64 / 3.0) as f32;
        assert_eq!(decode(Sign::Split), [third, -1.0, third, third]);
        assert_eq!(
            round_trip(QuantizeSpec::Sign(Sign::Split), &[2.0, 4.0], Code::Pack, 0),
            [3.0, 3.0]
        );
    }

    #[test]
    fn both_are_projections() {
        let values = heavy(5000, 4);
        for sign in [Sign::Shared, Sign::Split] {
            let out = round_trip(QuantizeSpec::Sign(sign), &values, Code::Rans, 0);
            let (cross, norm) = (dot(&values, &out), dot(&out, &out));
            assert!((cross - norm).abs() < 1e-5 * norm, "{cross} {norm}");
            sizes(QuantizeSpec::Sign(sign));
            corruption(QuantizeSpec::Sign(sign));
        }
    }
}
