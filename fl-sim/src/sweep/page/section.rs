//! What the charts of one phase are drawn from.

use crate::sweep::outcome::PhaseOutcome;
use crate::sweep::phase::Phase;
use crate::sweep::summary::{Group, Summary};

/// Colors that differ well.
pub(super) const COLORS: usize = 12;

/// A phase and the trials behind each of its rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    pub(crate) outcome: &'a PhaseOutcome,
    /// One for each row.
    pub(crate) groups: &'a [Group],
}

impl Section<'_> {
    pub(super) fn is_choice(&self) -> bool {
        self.outcome.phase == Phase::Choose
    }

    /// The name of a row's point: its label, with the variant where points of several variants have labels.
    pub(super) fn name(&self, row: &Summary) -> String {
        let mut others = self.outcome.rows.iter().filter(|other| other.variant != row.variant);
        let is_alone = others.all(|other| other.label.is_empty());
        match row.label.as_str() {
            "" => row.variant.clone(),
            label if is_alone => label.to_owned(),
            label => format!("{} {label}", row.variant),
        }
    }

    /// Names and colors: of the points, or of the variants if the points are too many for colors of their own.
    pub(super) fn legend(&self) -> Vec<(String, usize)> {
        let rows = self.outcome.rows.iter().zip(self.colors());
        if self.outcome.rows.len() <= COLORS {
            return rows.map(|(row, color)| (self.name(row), color)).collect();
        }
        let mut names: Vec<(String, usize)> = rows.map(|(row, color)| (row.variant.clone(), color)).collect();
        names.dedup();
        names
    }

    /// The color of each row: its own, or that of its variant if the rows are too many.
    pub(super) fn colors(&self) -> Vec<usize> {
        let rows = &self.outcome.rows;
        if rows.len() <= COLORS {
            return (0..rows.len()).collect();
        }
        let mut names: Vec<&str> = rows.iter().map(|row| row.variant.as_str()).collect();
        names.dedup();
        let of = |row: &Summary| names.iter().position(|name| *name == row.variant).unwrap_or(0);
        rows.iter().map(of).collect()
    }
}
