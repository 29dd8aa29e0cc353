//! Density: the share of values that is sent.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Share of values sent, in (0, 1].
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
        Err(Error::Usage(format!(
            "a density must be above 0 and at most 1, not {share}"
        )))
    }

    pub(crate) fn of(count: usize, len: usize) -> Self {
        Self((count as f64 / len.max(1) as f64).clamp(f64::MIN_POSITIVE, 1.0))
    }

    /// `ceil(share * len)`, at least one. The factor keeps a rounding error from raising an exact integer by one.
    pub(crate) fn count(self, len: usize) -> usize {
        ((self.0 * len as f64 * (1.0 - 1e-12)).ceil() as usize).clamp(1, len.max(1))
    }

    /// `floor(share * len)`. The factor keeps a rounding error from lowering an exact integer by one.
    pub(crate) fn count_down(self, len: usize) -> usize {
        ((self.0 * len as f64 * (1.0 + 1e-12)) as usize).min(len)
    }
}

/// A TOML table of a density alone.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DensityTable {
    pub(crate) density: Density,
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
        let down = |share, len| Density::new(share).unwrap().count_down(len);
        assert_eq!(
            [
                down(0.29, 100),
                down(0.07, 100),
                down(0.01, 199),
                down(1e-9, 5),
                down(1.0, 5)
            ],
            [29, 7, 1, 0, 5]
        );
        assert!(
            [0.0, -0.1, 1.1, f64::NAN]
                .into_iter()
                .all(|share| Density::new(share).is_err())
        );
    }
}
