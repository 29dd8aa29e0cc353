//! What the connections have moved in a span of time.

use std::collections::BTreeMap;

use fl_proto::ClientId;

use crate::accounting::connection_counters::sockets;
use crate::accounting::ledger::{Flow, Row};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bytes of each client; without a name, bytes of unauthenticated connections.
    pub(crate) flows: BTreeMap<Option<ClientId>, Flow>,
    /// Bytes of the endpoint's meter, up and down.
    pub(crate) meter: (u64, u64),
}

/// The bytes since the last sample, without taking one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peek {
    pub(crate) sample: Sample,
    /// Reading of the endpoint's meter: bytes up and down since the server started.
    pub(crate) meter: (u64, u64),
    /// The connected clients, each with the newest model version that its sockets have carried completely.
    pub(crate) connected: BTreeMap<ClientId, Option<u64>>,
}

/// Bytes of a client's sockets since the server started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientBytes {
    /// Its name, or `*` for all clients without a name of their own.
    pub(crate) client: String,
    pub(crate) socket: (u64, u64),
}

impl Sample {
    /// Whether the connections' meters and the endpoint's meter agree.
    pub(crate) fn is_balanced(&self) -> bool {
        sockets(&self.flows) == self.meter
    }

    /// The alert if they do not.
    pub(crate) fn alert(&self, round: u64) -> Option<String> {
        (!self.is_balanced())
            .then(|| format!("the ledger of round {round} differs from what the sockets carried: {self:?}"))
    }

    pub(crate) fn total(&self) -> Flow {
        let mut total = Flow::default();
        self.flows.values().for_each(|flow| total.add(flow));
        total
    }

    pub(crate) fn rows(&self, round: u64) -> Vec<Row> {
        let clients = self.flows.iter().map(|(client, flow)| Row::Client {
            round,
            client: client.clone(),
            flow: *flow,
        });
        let (read, written) = self.meter;
        clients.chain([Row::Meter { round, read, written }]).collect()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RowSums {
    pub(crate) flow: Flow,
    /// Bytes of the endpoint's meter, up and down.
    pub(crate) metered: (u64, u64),
}

impl RowSums {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_does_not_balance_says_so() {
        let flows = BTreeMap::from([(
            None,
            Flow {
                socket_up: 3,
                ..Flow::default()
            },
        )]);
        let mut sample = Sample { flows, meter: (4, 0) };
        assert!(!sample.is_balanced());
        assert!(sample.alert(7).is_some_and(|text| text.contains("round 7 differs")));
        sample.meter = (3, 0);
        assert_eq!(sample.alert(7), None);
    }
}
