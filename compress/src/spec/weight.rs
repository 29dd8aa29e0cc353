//! How much the error of a tensor counts when a budget is allotted.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;

const RANGE: RangeInclusive<f64> = 1e-6..=1e6;
const FISHER: &str = "fisher";

/// The factor of a tensor's squared error when a budget is allotted: `4`, or `"fisher"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Weight {
    /// A constant factor, from 1e-6 to 1e6.
    Number(f64),
    /// By Fisher information: the mean of the squared gradients, weighted by the squared values of the tensor, over that of
    /// all tensors with this weight; between 1/1024 and 1024. It is 1 without squared gradients (see [`crate::EncodeOptions`]).
    Fisher,
}

impl Default for Weight {
    fn default() -> Self {
        Self::Number(1.0)
    }
}

impl Weight {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Serialize for Weight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Number(number) => serializer.serialize_f64(number),
            Self::Fisher => serializer.serialize_str(FISHER),
        }
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

struct Either;

impl Visitor<'_> for Either {
    type Value = Weight;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = RANGE.into_inner();
        write!(f, "a `weight` from {least:e} to {most:e}, or {FISHER:?}")
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Weight, E> {
        if RANGE.contains(&number) {
            return Ok(Weight::Number(number));
        }
        Err(E::custom(Error::Usage(format!(
            "a `weight` must be from {:e} to {:e}, not {number}",
            RANGE.start(),
            RANGE.end()
        ))))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Weight, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Weight, E> {
        self.visit_f64(number as f64)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Weight, E> {
        (text == FISHER)
            .then_some(Weight::Fisher)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}
