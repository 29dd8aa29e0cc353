//! One row of the ledger.

use fl_compress::Digest;
use fl_proto::ClientId;
use fl_report::Flow;
use serde::{Deserialize, Serialize};

use crate::accounting::ledger::fidelity::Fidelity;
use crate::accounting::ledger::section::{Direction, Section};

/// Its bytes begin with its place in this list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Row {
    /// Bytes of one client in one round; without a name, bytes of unauthenticated connections.
    Client {
        round: u64,
        client: Option<ClientId>,
        #[serde(with = "numbers")]
        flow: Flow,
    },
    /// What the endpoint's own meter counted in the same time.
    Meter { round: u64, read: u64, written: u64 },
    /// Bytes of a closed round's frames by section.
    Sections {
        round: u64,
        /// Updates or model update.
        direction: Direction,
        /// In the order of a frame.
        sections: Vec<Section>,
    },
    /// Fidelity of a round's frames. Several rows of a round and direction add up.
    Fidelity {
        round: u64,
        /// Updates or model update.
        direction: Direction,
        /// In the order of their first tensors.
        sections: Vec<Fidelity>,
    },
    /// Ends a closed round with its entry of the hash chain.
    Entry {
        round: u64,
        /// The digest of the round's records and rows and of the entry before.
        entry: Digest,
    },
}

impl Row {
    pub fn round(&self) -> u64 {
        match self {
            Self::Client { round, .. }
            | Self::Meter { round, .. }
            | Self::Sections { round, .. }
            | Self::Fidelity { round, .. }
            | Self::Entry { round, .. } => *round,
        }
    }
}

/// A [`Flow`] as its numbers: what reports leave out is stored, too.
mod numbers {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use fl_report::Flow;

    pub(super) fn serialize<S: Serializer>(flow: &Flow, to: S) -> Result<S::Ok, S::Error> {
        flow.fields().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Flow, D::Error> {
        let numbers = <[u64; Flow::FIELDS]>::deserialize(from)?;
        let mut flow = Flow::default();
        flow.fields_mut()
            .into_iter()
            .zip(numbers)
            .for_each(|(field, number)| *field = number);
        Ok(flow)
    }
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    pub(in super::super) fn flow(k: u64) -> Flow {
        Flow {
            update: k,
            refused: 2 * k,
            steps: 3 * k,
            snapshot: 4 * k,
            socket_up: 5 * k,
            socket_down: 9 * k,
            ..Flow::default()
        }
    }

    pub(in super::super) fn rows() -> Vec<Row> {
        let client = |round, name: &str, k| Row::Client {
            round,
            client: name.parse().ok(),
            flow: flow(k),
        };
        let meter = |round, read, written| Row::Meter { round, read, written };
        vec![
            client(1, "a", 1),
            client(1, "", 10),
            client(2, "a", 100),
            meter(1, 55, 99),
            meter(2, 500, 900),
            Row::Sections {
                round: 2,
                direction: Direction::Up,
                sections: vec![Section {
                    first: 1,
                    tensors: 2,
                    parameters: 30,
                    frames: 4,
                    values: 5,
                    ..Section::default()
                }],
            },
            Row::Fidelity {
                round: 2,
                direction: Direction::Down,
                sections: vec![Fidelity {
                    first: 1,
                    frames: 2,
                    cosine: -3,
                    least_cosine: -4,
                    kept: 5,
                    least_kept: -6,
                    age: 7,
                    oldest: 8,
                }],
            },
            Row::Entry {
                round: 2,
                entry: Digest::of(b"2"),
            },
        ]
    }
}
