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
pub(crate) mod gather;
pub(crate) mod known;
pub(crate) mod model;

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::code::context::levels::rate::Aim;
use crate::code::method::Code;
use crate::error::Error;
use crate::forms::methods::MethodInfo;
use crate::layout::Shape;
use crate::quantize::method::{Entry, KnownPlane, Quantizer, Size};
use crate::quantize::uniform::Rounding;
use crate::rng::KeyedRng;

// Squared error that a bit is worth, in squared steps: the slope of a uniform quantizer at high rate, `2 ln 2 / 12`,
// and about that of a dead zone at low rate.
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
    /// Where its plane is to end (see [`DeadZone::within`]).
    #[serde(skip)]
    aim: Option<Aim>,
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
            aim: None,
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
            aim: None,
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

    /// The same, but if a coder chooses levels, it varies what a bit is worth so that the plane ends about there.
    pub(crate) fn within(self, aim: Option<Aim>) -> Self {
        Self { aim, ..self }
    }

    /// The same after `bytes` of what its plane may take.
    pub(crate) fn after(self, bytes: usize) -> Self {
        self.within(self.aim.map(|aim| Aim {
            bytes: aim.bytes.saturating_sub(bytes).max(1),
            ..aim
        }))
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
            aim: None,
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

    fn encode_known(
        &self,
        values: &[f32],
        shape: Shape,
        code: Code,
        rng: KeyedRng,
        out: &mut Vec<u8>,
    ) -> (Size, Option<Arc<dyn KnownPlane>>) {
        let (size, levels) = self.encode_planes(values, shape, code, rng, out);
        (size, levels.known(values.len()))
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
        Some((size, levels.values(values.len())))
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
mod tests;
