//! A density and its limits, as rules of several kinds have them.

use crate::density::Density;
use crate::error::Error;
use crate::forms::rule::{self, Table};

// Default of `density`.
const DENSITY: f64 = 0.01;

/// The parameters `density`, `least` and `most`. Invariant: `least <= density <= most`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DensityRange {
    pub(crate) density: Density,
    pub(crate) least: Density,
    pub(crate) most: Density,
}

impl DensityRange {
    /// Reads them; by default `least` is a tenth of the density and `most` ten times it.
    ///
    /// # Errors
    /// `Usage` if one is out of range or the invariant does not hold.
    pub(crate) fn read(table: &mut Table) -> Result<Self, Error> {
        let density = table.density("density", DENSITY)?;
        let range = Self {
            density,
            least: table.density("least", rule::tenth(density))?,
            most: table.density("most", rule::ten_times(density))?,
        };
        if range.least > density || density > range.most {
            let [least, density, most] = [range.least, density, range.most].map(f64::from);
            return Err(Error::Usage(format!(
                "`least` <= `density` <= `most` must hold, not {least}, {density}, {most}"
            )));
        }
        Ok(range)
    }

    /// The table with those that differ from their defaults.
    pub(crate) fn in_table(&self, table: Table) -> Table {
        table
            .with("density", self.density.into(), DENSITY)
            .with("least", self.least.into(), rule::tenth(self.density))
            .with("most", self.most.into(), rule::ten_times(self.density))
    }

    /// `count` within the limits for `len` values.
    pub(crate) fn clamp(&self, count: usize, len: usize) -> usize {
        count.clamp(self.least.count(len), self.most.count(len))
    }
}
