//! Sums of a run's ledger rows.

use crate::accounting::ledger::{Flow, Row};
use crate::accounting::sample::Sample;

/// Sums of ledger rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Booked {
    pub(crate) flow: Flow,
    /// Bytes of the endpoint's meter, up and down.
    pub(crate) metered: (u64, u64),
}

impl Booked {
    pub(crate) fn add(&mut self, row: &Row) {
        match row {
            Row::Client { flow, .. } => self.flow.add(flow),
            Row::Meter { read, written, .. } => {
                self.metered.0 = self.metered.0.saturating_add(*read);
                self.metered.1 = self.metered.1.saturating_add(*written);
            }
            Row::Sections { .. } | Row::Fidelity { .. } | Row::Entry { .. } => {}
        }
    }

    pub(crate) fn of(sample: &Sample) -> Self {
        Self {
            flow: sample.total(),
            metered: sample.meter,
        }
    }
}
