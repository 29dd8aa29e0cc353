//! First slot: which values are sent.

mod top_k;

use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;
use crate::spec::choice::{self, Choice};

/// What was asked of the first slot.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceSpec {
    /// Every value.
    #[default]
    Keep,
    /// The share of values that are largest in magnitude.
    TopK(Density),
}

impl<'de> Deserialize<'de> for ReduceSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choice::deserialize(deserializer)
    }
}

impl Choice for ReduceSpec {
    const FORMS: &'static str = r#""keep" or { top_k = density }"#;

    fn plain(name: &str) -> Option<Self> {
        (name == "keep").then_some(Self::Keep)
    }

    fn with_numbers<'de, A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "top_k" {
            return Ok(None);
        }
        map.next_value().map(|density| Some(Self::TopK(density)))
    }
}

/// What was done in the first slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// Every value: no indices.
    Keep,
    /// The `k` values largest in magnitude, the lowest index first among equals; all others are zero.
    TopK {
        /// Number of values kept.
        k: u32,
    },
}

impl ReduceSpec {
    /// Ascending indices of the values to send; `None` for all.
    pub(crate) fn support(self, values: &[f32]) -> Option<Vec<u32>> {
        match self {
            Self::Keep => None,
            Self::TopK(density) => Some(top_k::top_k(values, density.count(values.len()))),
        }
    }
}

/// Share of values kept, in (0, 1].
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Density(f64);

impl Density {
    /// A density.
    ///
    /// # Errors
    /// `Usage` if `share` is not in (0, 1].
    pub fn new(share: f64) -> Result<Self, Error> {
        if share > 0.0 && share <= 1.0 {
            return Ok(Self(share));
        }
        Err(Error::Usage(format!("a density is above 0 and at most 1, not {share}")))
    }

    /// `ceil(share * len)`, at least one; a product that is whole but for rounding is not rounded up.
    pub(crate) fn count(self, len: usize) -> usize {
        ((self.0 * len as f64 * (1.0 - 1e-12)).ceil() as usize).clamp(1, len.max(1))
    }
}

impl TryFrom<f64> for Density {
    type Error = Error;

    fn try_from(share: f64) -> Result<Self, Error> {
        Self::new(share)
    }
}

impl From<Density> for f64 {
    fn from(density: Density) -> Self {
        density.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_rounds_up_but_not_for_rounding_errors() {
        let count = |share, len| Density::new(share).unwrap().count(len);
        assert_eq!(count(0.07, 100), 7);
        assert_eq!(count(0.01, 10_000_000), 100_000);
        assert_eq!(count(0.01, 101), 2);
        assert_eq!(count(1e-9, 5), 1);
        assert_eq!(count(1.0, 5), 5);
        assert!(
            [0.0, -0.1, 1.1, f64::NAN]
                .into_iter()
                .all(|share| Density::new(share).is_err())
        );
    }
}
