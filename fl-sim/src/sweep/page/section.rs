//! What the charts of one phase are drawn from.

use crate::sweep::outcome::PhaseOutcome;
use crate::sweep::phase::Phase;
use crate::sweep::summary::{Group, Summary};

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

    /// The name of a row's point: its label, with the variant where another variant has the same label.
    pub(super) fn name(&self, row: &Summary) -> String {
        let others = self.outcome.rows.iter().filter(|other| other.variant != row.variant);
        let is_shared = others.into_iter().any(|other| other.label == row.label);
        match (row.label.as_str(), is_shared) {
            ("", _) => row.variant.clone(),
            (label, true) => format!("{} {label}", row.variant),
            (label, false) => label.to_owned(),
        }
    }

    /// The color of each row: one for each variant, or for each row if one variant has them all but the baseline.
    pub(super) fn colors(&self) -> Vec<usize> {
        let rows = &self.outcome.rows;
        if rows.len() <= 8 {
            return (0..rows.len()).collect();
        }
        let mut names: Vec<&str> = rows.iter().map(|row| row.variant.as_str()).collect();
        names.dedup();
        let of = |row: &Summary| names.iter().position(|name| *name == row.variant).unwrap_or(0);
        rows.iter().map(of).collect()
    }
}
