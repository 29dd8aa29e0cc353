//! Dead-zone quantization: multiples of one step with a wide zero. The step sets both sparsity and precision.
//!
//! Nearest: `q = sign(v) * floor(|v| / step + 1 - theta)`, theta from 0.5 (rounding) to 1 (truncation). A level decodes
//! to `q * step`, except that `|q| = 1` decodes to the mean magnitude of its values, because most of the nonzero values
//! are there (Sullivan 1996; as in video coding). `||C(v) - v||_inf <= step`; a contraction if some magnitude reaches
//! `theta * step`, so a relative step is limited to where one does.
//!
//! Under a budget with context coding, the coder may lower a level by one where that costs less error than the bits are
//! worth ([`crate::code::context::levels::tradeoff`]); the bound of the error stays.
//!
//! Stochastic: `q = sign(v) * (floor(|v| / step) + Bernoulli(frac(|v| / step)))`, decoded to `q * step`: QSGD (Alistarh
//! et al. 2017, equation 3.1), parameterized by the step instead of the number of levels. Unbiased; with `f = frac(|v|
//! / step)`, `E[(C(v) - v)^2] = step^2 f (1 - f)`; omega is at most `step ||v||_1 / ||v||^2`.
//!
//! The planes are the step and the mean magnitude at level one (binary32, positive) and a level plane.

pub(crate) mod bins;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod model;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::code::method::Code;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::method::{Entry, Quantizer, Size};
use crate::quantize::uniform::Rounding;
use crate::rng::KeyedRng;

/// Squared error that a bit is worth, in squared steps: the slope of a uniform quantizer at high rate, `2 ln 2 / 12`, and
/// about that of a dead zone at low rate.
pub(crate) const WORTH: f64 = 0.1155;
const DEFAULT_STEP: f64 = 2.0;
const DEFAULT_THRESHOLD: f64 = 0.66;

/// Step size: the distance between two levels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// In units of the root mean square of the values of the tensor.
    Relative(f64),
    /// In units of the values.
    Absolute(f32),
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Relative(step) => serializer.serialize_f64(step),
            Self::Absolute(_) => Err(serde::ser::Error::custom("a step chosen by a budget has no TOML form")),
        }
    }
}

/// Requested dead-zone quantization.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DeadZone {
    step: Step,
    rounding: Rounding,
    /// `None` for stochastic rounding.
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<f64>,
    /// Whether context coding may lower levels (see [`DeadZone::optimized`]).
    #[serde(skip)]
    is_optimized: bool,
}

impl DeadZone {
    /// Nearest rounding with a step size of `step` root mean squares. Magnitudes below `threshold` steps become zero.
    ///
    /// # Errors
    /// `Usage` unless the step is from 0.001 to 1000 and the threshold from 0.5 to 1.
    pub fn nearest(step: f64, threshold: f64) -> Result<Self, Error> {
        if !(0.5..=1.0).contains(&threshold) {
            return Err(Error::Usage(format!(
                "a threshold must be from 0.5 to 1, not {threshold}"
            )));
        }
        Ok(Self {
            step: relative(step)?,
            rounding: Rounding::Nearest,
            threshold: Some(threshold),
            is_optimized: false,
        })
    }

    /// Stochastic, unbiased rounding with a step size of `step` root mean squares.
    ///
    /// # Errors
    /// `Usage` unless the step is from 0.001 to 1000.
    pub fn stochastic(step: f64) -> Result<Self, Error> {
        Ok(Self {
            step: relative(step)?,
            rounding: Rounding::Stochastic,
            threshold: None,
            is_optimized: false,
        })
    }

    /// Step size: the distance between two levels.
    pub fn step(&self) -> Step {
        self.step
    }

    /// The rounding.
    pub fn rounding(&self) -> Rounding {
        self.rounding
    }

    /// Magnitudes below this many steps become zero; `None` for stochastic rounding.
    pub fn threshold(&self) -> Option<f64> {
        self.threshold
    }

    /// The same with an absolute step. If `step` is not a positive normal float, every value becomes zero.
    pub(crate) fn with_step(self, step: f32) -> Self {
        Self {
            step: Step::Absolute(step),
            ..self
        }
    }

    /// The same, but with nearest rounding under context coding, a level is lowered by one where that minimizes `error +
    /// WORTH step^2 bits`. The error of a value still is at most one step.
    pub(crate) fn optimized(self) -> Self {
        Self {
            is_optimized: self.rounding == Rounding::Nearest,
            ..self
        }
    }

    /// Whether a coder of levels chooses them.
    pub(crate) fn is_optimized(&self) -> bool {
        self.is_optimized
    }
}

impl Default for DeadZone {
    /// Nearest rounding, a step of two root mean squares, threshold 0.66.
    fn default() -> Self {
        Self {
            step: Step::Relative(DEFAULT_STEP),
            rounding: Rounding::Nearest,
            threshold: Some(DEFAULT_THRESHOLD),
            is_optimized: false,
        }
    }
}

pub(crate) const METHOD: Entry = Entry {
    info: MethodInfo {
        name: "dead_zone",
        about: "Multiples of one step with a wide zero; level one decodes to the mean of its values.",
        examples: &[
            "'dead_zone'",
            "{ dead_zone = { step = 3, threshold = 0.5 } }",
            "{ dead_zone = { step = 2.5, rounding = 'stochastic' } }",
        ],
        leaves_out: true,
    },
    tag: 4,
    bytes: None,
    minor: 1,
    words: |_| "dead zone".to_owned(),
    read: |reader, expected| Ok(Box::new(decode::Plane::read(reader, expected.shape, expected.code)?)),
};

impl Quantizer for DeadZone {
    fn without_numbers() -> Option<Self> {
        Some(Self::default())
    }

    fn encode(&self, values: &[f32], shape: Shape, code: Code, rng: KeyedRng, out: &mut Vec<u8>) -> Size {
        self.encode_planes(values, shape, code, rng, out).0
    }

    fn encode_and_decode(
        &self,
        values: &[f32],
        shape: Shape,
        code: Code,
        rng: KeyedRng,
        out: &mut Vec<u8>,
    ) -> Option<(Size, Vec<f32>)> {
        let (size, levels) = self.encode_planes(values, shape, code, rng, out);
        Some((size, levels.values()))
    }

    fn bits(&self) -> f64 {
        3.0
    }

    fn most_bytes(&self, len: usize) -> usize {
        // Levels have no fixed bit width. With a step of its own none is beyond 2^26, which takes fewer than 40 bits.
        len * 5 + 16
    }
}

fn relative(step: f64) -> Result<Step, Error> {
    if (0.001..=1000.0).contains(&step) {
        Ok(Step::Relative(step))
    } else {
        Err(Error::Usage(format!("a step must be from 0.001 to 1000, not {step}")))
    }
}

impl<'de> Deserialize<'de> for DeadZone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, expecting = "{ step = .., threshold = .., rounding = .. }")]
        struct Raw {
            #[serde(default = "default_step")]
            step: f64,
            threshold: Option<f64>,
            #[serde(default)]
            rounding: Rounding,
        }

        fn default_step() -> f64 {
            DEFAULT_STEP
        }

        let raw = Raw::deserialize(deserializer)?;
        match (raw.rounding, raw.threshold) {
            (Rounding::Nearest, threshold) => Self::nearest(raw.step, threshold.unwrap_or(DEFAULT_THRESHOLD)),
            (Rounding::Stochastic, None) => Self::stochastic(raw.step),
            (Rounding::Stochastic, Some(_)) => {
                return Err(serde::de::Error::custom("a threshold requires nearest rounding"));
            }
        }
        .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::method::Code;
    use crate::layout::Shape;
    use crate::quantize::QuantizeSpec;
    use crate::quantize::dead_zone::decode::Plane;
    use crate::quantize::laws::{corruption, gaussian, heavy, round_trip, sizes, squared_error, unbiased};
    use crate::quantize::method::ValuePlane;
    use crate::quantize::numbers::root_mean_square;
    use crate::rng::KeyedRng;
    use crate::wire::Reader;

    const G8: [f32; 8] = [0.9, -0.5, 0.3, -0.1, 0.05, 0.0, -0.02, 0.6];

    fn nearest(step: f32, threshold: f64) -> QuantizeSpec {
        QuantizeSpec::DeadZone(DeadZone::nearest(1.0, threshold).unwrap().with_step(step))
    }

    fn stochastic(step: f32) -> QuantizeSpec {
        QuantizeSpec::DeadZone(DeadZone::stochastic(1.0).unwrap().with_step(step))
    }

    #[test]
    fn the_worked_example() {
        // Levels [2, -1, 1, 0, 0, 0, 0, 1]; the mean magnitude at level one is (.5 + .3 + .6) / 3.
        let out = round_trip(nearest(0.4, 0.6), &G8, Code::Pack, 0);
        let mean = out[7];
        assert!((mean - 1.4 / 3.0).abs() < 1e-6);
        assert_eq!(out, [0.8, -mean, mean, 0.0, 0.0, 0.0, 0.0, mean]);
    }

    #[test]
    fn small_values_are_zero_and_errors_bounded() {
        let values = heavy(5000, 7);
        for (relative, threshold) in [(0.1, 0.5), (0.5, 0.66), (2.0, 0.66), (2.0, 1.0), (8.0, 0.8)] {
            let step = (relative * root_mean_square(&values)) as f32;
            let out = round_trip(nearest(step, threshold), &values, Code::Rans, 0);
            for (value, out) in values.iter().zip(&out) {
                if f64::from(value.abs()) < threshold * f64::from(step) * 0.9999 {
                    assert_eq!(*out, 0.0);
                }
                assert!((value - out).abs() <= step * 1.0001 && value * out >= 0.0);
            }
            let whole = squared_error(&values, &vec![0.0; values.len()]);
            assert!(squared_error(&values, &out) < whole, "not a contraction");
        }
    }

    #[test]
    fn a_matrix_decodes_as_a_row_does_under_every_code() {
        let (values, rng) = (heavy(7 * 301, 2), KeyedRng::new(0, 0));
        let decode = |shape: Shape, code| {
            let (mut bytes, mut out) = (Vec::new(), vec![0.0; values.len()]);
            DeadZone::default().encode(&values, shape, code, rng, &mut bytes);
            let mut open = Plane::read(&mut Reader::new(&bytes), shape, code)
                .unwrap()
                .open()
                .unwrap();
            out.chunks_mut(500).for_each(|part| open.read(part).unwrap());
            open.finish().unwrap();
            out
        };
        let row = decode(Shape::row(values.len()), Code::Pack);
        for code in Code::ALL.iter().copied() {
            assert_eq!(decode(Shape { rows: 7, cols: 301 }, code), row);
        }
    }

    #[test]
    fn only_context_coding_of_nearest_levels_is_optimized() {
        let (values, rng) = (heavy(3000, 6), KeyedRng::new(3, 0));
        let bytes = |zone: DeadZone, code| {
            let mut bytes = Vec::new();
            zone.encode(&values, Shape { rows: 30, cols: 100 }, code, rng, &mut bytes);
            bytes
        };
        let zone = DeadZone::default();
        assert!(bytes(zone.optimized(), Code::Context).len() < bytes(zone, Code::Context).len());
        assert_eq!(bytes(zone.optimized(), Code::Rans), bytes(zone, Code::Rans));
        let drawn = DeadZone::stochastic(2.0).unwrap();
        assert_eq!(bytes(drawn.optimized(), Code::Context), bytes(drawn, Code::Context));
    }

    #[test]
    fn a_relative_step_never_sends_nothing() {
        let spec = QuantizeSpec::DeadZone(DeadZone::default());
        assert_eq!(round_trip(spec, &[3.0], Code::Pack, 0), [3.0]);
        assert_eq!(round_trip(spec, &[-0.5; 40], Code::Rans, 0), [-0.5; 40]);
        for len in 1..50 {
            let values = gaussian(len, len as u64);
            assert!(round_trip(spec, &values, Code::Rans, 0).iter().any(|&out| out != 0.0));
        }
    }

    #[test]
    fn a_larger_step_takes_fewer_bytes() {
        let values = heavy(20_000, 3);
        let mut last = usize::MAX;
        for step in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4] {
            let (mut bytes, spec) = (Vec::new(), DeadZone::nearest(step, 0.66).unwrap());
            let shape = Shape::row(values.len());
            spec.encode(&values, shape, Code::Rans, KeyedRng::new(0, 0), &mut bytes);
            assert!(bytes.len() < last);
            last = bytes.len();
        }
    }

    #[test]
    fn chance_has_no_bias_and_the_error_of_the_formula() {
        for step in [0.07f32, 0.4, 2.0] {
            unbiased(stochastic(step), &G8, |i| {
                let fraction = (f64::from(G8[i].abs()) / f64::from(step)).fract();
                f64::from(step).powi(2) * fraction * (1.0 - fraction)
            });
        }
        // QSGD of [3, -4, 0, 0] with 4 levels: the norm is 5, so the step is 1.25 and the variance 0.625.
        let values = [3.0, -4.0, 0.0, 0.0];
        let total = |i: usize| [0.24, 0.16, 0.0, 0.0][i] * 1.5625;
        assert!(((0..4).map(total).sum::<f64>() - 0.625).abs() < 1e-12);
        unbiased(stochastic(1.25), &values, total);
        for seed in 1..50 {
            let out = round_trip(stochastic(1.25), &values, Code::Pack, seed);
            assert!([2.5, 3.75].contains(&out[0]) && [-3.75, -5.0].contains(&out[1]) && out[2] == 0.0);
        }
    }

    #[test]
    fn extremes_stay_finite_and_damage_is_noticed() {
        for spec in [
            QuantizeSpec::DeadZone(DeadZone::default()),
            QuantizeSpec::DeadZone(DeadZone::stochastic(0.5).unwrap()),
            nearest(f32::MAX, 0.5),
            nearest(f32::MAX / 1.7, 0.5),
            nearest(f32::MIN_POSITIVE, 0.66),
            nearest(1e-45, 0.66),
            nearest(f32::NAN, 0.66),
            stochastic(f32::MAX / 3.0),
            stochastic(1e-30),
        ] {
            sizes(spec);
        }
        corruption(QuantizeSpec::DeadZone(DeadZone::default()));
        corruption(QuantizeSpec::DeadZone(DeadZone::stochastic(0.01).unwrap()));
    }
}
