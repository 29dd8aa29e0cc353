//! The sums of a run's ledger.

use std::collections::BTreeMap;

use fl_compress::Digest;
use fl_proto::ClientId;
use fl_report::Flow;

use crate::accounting::ledger::fidelity::{Fidelity, add_all};
use crate::accounting::ledger::row::Row;
use crate::accounting::ledger::section::{Direction, Section};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Bytes by round and client; without a name, bytes of unauthenticated connections.
    pub rows: BTreeMap<(u64, Option<ClientId>), Flow>,
    /// Bytes of the meter, up and down, by round.
    pub meter: BTreeMap<u64, (u64, u64)>,
    pub sections: BTreeMap<(u64, Direction), Vec<Section>>,
    pub fidelity: BTreeMap<(u64, Direction), Vec<Fidelity>>,
    /// The hash chain's entries of the closed rounds.
    pub entries: BTreeMap<u64, Digest>,
}

impl Ledger {
    pub fn add(&mut self, row: Row) {
        match row {
            Row::Client { round, client, flow } => {
                self.rows.entry((round, client)).or_default().add(&flow);
            }
            Row::Meter { round, read, written } => {
                let (up, down) = self.meter.entry(round).or_default();
                *up = up.saturating_add(read);
                *down = down.saturating_add(written);
            }
            Row::Sections {
                round,
                direction,
                sections,
            } => {
                self.sections.insert((round, direction), sections);
            }
            Row::Fidelity {
                round,
                direction,
                sections,
            } => add_all(self.fidelity.entry((round, direction)).or_default(), &sections),
            Row::Entry { round, entry } => {
                self.entries.insert(round, entry);
            }
        }
    }

    pub fn rounds(&self) -> BTreeMap<u64, Flow> {
        let mut out = BTreeMap::<_, Flow>::new();
        for ((round, _), flow) in &self.rows {
            out.entry(*round).or_default().add(flow);
        }
        out
    }

    /// Bytes of the meter in one round, up and down.
    pub fn metered_in(&self, round: u64) -> (u64, u64) {
        self.meter.get(&round).copied().unwrap_or_default()
    }

    pub fn clients(&self) -> BTreeMap<Option<ClientId>, Flow> {
        let mut out = BTreeMap::<_, Flow>::new();
        for ((_, client), flow) in &self.rows {
            out.entry(client.clone()).or_default().add(flow);
        }
        out
    }

    pub fn total(&self) -> Flow {
        sum(self.rows.values())
    }

    /// Bytes of the meter in all rounds, up and down.
    pub fn metered(&self) -> (u64, u64) {
        self.meter.values().fold((0, 0), |(up, down), (u, d)| {
            (up.saturating_add(*u), down.saturating_add(*d))
        })
    }

    /// Whether the clients' rows and the meter's rows are equal to the byte.
    pub fn is_balanced(&self) -> bool {
        let total = self.total();
        (total.socket_up, total.socket_down) == self.metered()
    }
}

fn sum<'a>(flows: impl Iterator<Item = &'a Flow>) -> Flow {
    let mut out = Flow::default();
    flows.for_each(|flow| out.add(flow));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::ledger::row::samples::{flow, rows};

    #[test]
    fn sums_are_by_round_by_client_and_in_all() {
        let mut ledger = Ledger::default();
        rows().into_iter().for_each(|row| ledger.add(row));
        assert_eq!(ledger.rounds()[&1], flow(11));
        assert_eq!(ledger.rounds(), [(1, flow(11)), (2, flow(100))].into());
        assert_eq!(ledger.clients()[&Some("a".parse().unwrap())], flow(101));
        assert_eq!(ledger.total(), flow(111));
        assert_eq!(ledger.metered_in(2), (500, 900));
        assert_eq!(ledger.sections[&(2, Direction::Up)][0].parameters, 30);
        assert_eq!(ledger.fidelity[&(2, Direction::Down)][0].frames, 2);
        assert!(ledger.is_balanced());
        ledger.add(Row::Meter {
            round: 2,
            read: 1,
            written: 0,
        });
        assert!(!ledger.is_balanced());
    }
}
