//! The ledger: what every byte on the socket was for, by round and client.
//!
//! A row says how many bytes a client's connections moved in a round, and how many of them were frames; the rest is
//! control (TLS, HTTP/2, small messages). Beside the rows stands what the endpoint's meter counted on its own. The
//! two must be equal to the byte. Rows add up: a round may have several for one client.

use std::collections::BTreeMap;

use fl_proto::ClientId;
use serde::{Deserialize, Serialize};

/// Bytes of one client in one round, as increments since the row before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Frames of updates that were taken.
    pub update: u64,
    /// Frames of updates that were not: refused, sent twice, or broken off for good.
    pub waste: u64,
    /// Frames of the chain of steps.
    pub steps: u64,
    /// Snapshots of the model.
    pub snapshot: u64,
    /// Everything read from the client's sockets.
    pub socket_up: u64,
    /// Everything written to them.
    pub socket_down: u64,
}

impl Flow {
    /// Frame bytes from the client, wanted or not.
    pub fn frames_up(&self) -> u64 {
        self.update.saturating_add(self.waste)
    }

    /// Frame bytes to the client.
    pub fn frames_down(&self) -> u64 {
        self.steps.saturating_add(self.snapshot)
    }

    /// Adds another flow, field by field.
    pub fn add(&mut self, other: &Flow) {
        let pairs = self.fields_mut().into_iter().zip(other.fields());
        pairs.for_each(|(own, more)| *own = own.saturating_add(more));
    }

    /// What has been added since `earlier`.
    pub(crate) fn since(&self, earlier: &Flow) -> Flow {
        let mut out = *self;
        let pairs = out.fields_mut().into_iter().zip(earlier.fields());
        pairs.for_each(|(own, less)| *own = own.saturating_sub(less));
        out
    }

    fn fields(&self) -> [u64; FIELDS] {
        [
            self.update,
            self.waste,
            self.steps,
            self.snapshot,
            self.socket_up,
            self.socket_down,
        ]
    }

    fn fields_mut(&mut self) -> [&mut u64; FIELDS] {
        let Self {
            update,
            waste,
            steps,
            snapshot,
            socket_up,
            socket_down,
        } = self;
        [update, waste, steps, snapshot, socket_up, socket_down]
    }
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// Bytes of one client in one round; without a name, of connections that never said who they were.
    Client {
        /// The round.
        round: u64,
        /// The client.
        client: Option<ClientId>,
        /// Its bytes.
        flow: Flow,
    },
    /// What the endpoint's meter counted in the same time.
    Meter {
        /// The round.
        round: u64,
        /// Bytes read from all sockets.
        read: u64,
        /// Bytes written to them.
        written: u64,
    },
}

/// Version of a row's bytes; another is refused.
const VERSION: u8 = 1;
/// Numbers of a [`Flow`].
const FIELDS: usize = 6;
const CLIENT: u8 = 0;
const METER: u8 = 1;

impl Row {
    /// The row as stored: version, kind, round, numbers (little-endian), then the client's name.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 + 8 * (FIELDS + 1) + 16);
        out.push(VERSION);
        let mut numbers = |kind: u8, round: u64, numbers: &[u64]| {
            out.push(kind);
            out.extend_from_slice(&round.to_le_bytes());
            numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        };
        match self {
            Self::Client { round, client, flow } => {
                numbers(CLIENT, *round, &flow.fields());
                out.extend_from_slice(client.as_ref().map_or(&[][..], |name| name.as_str().as_bytes()));
            }
            Self::Meter { round, read, written } => numbers(METER, *round, &[*read, *written]),
        }
        out
    }

    /// Reads a row back; `None` if the bytes are not a row of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[version, kind], rest) = bytes.split_first_chunk::<2>()?;
        if version != VERSION {
            return None;
        }
        let (round, mut rest) = number(rest)?;
        let mut next = || {
            let (n, tail) = number(rest)?;
            rest = tail;
            Some(n)
        };
        match kind {
            CLIENT => {
                let mut flow = Flow::default();
                for field in flow.fields_mut() {
                    *field = next()?;
                }
                let name = std::str::from_utf8(rest).ok()?;
                let client = if name.is_empty() {
                    None
                } else {
                    Some(name.parse().ok()?)
                };
                Some(Self::Client { round, client, flow })
            }
            METER => {
                let (read, written) = (next()?, next()?);
                rest.is_empty().then_some(Self::Meter { round, read, written })
            }
            _ => None,
        }
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, tail) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*head), tail))
}

/// The ledger of a run, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Bytes by round and client; without a name, of connections that never said who they were.
    pub rows: BTreeMap<(u64, Option<ClientId>), Flow>,
    /// What the meter counted, up and down, by round.
    pub meter: BTreeMap<u64, (u64, u64)>,
}

impl Ledger {
    /// Adds one row.
    pub fn add(&mut self, row: &Row) {
        match row {
            Row::Client { round, client, flow } => {
                self.rows.entry((*round, client.clone())).or_default().add(flow);
            }
            Row::Meter { round, read, written } => {
                let (up, down) = self.meter.entry(*round).or_default();
                *up = up.saturating_add(*read);
                *down = down.saturating_add(*written);
            }
        }
    }

    /// Bytes of all clients in one round.
    pub fn round(&self, round: u64) -> Flow {
        sum(self
            .rows
            .range((round, None)..)
            .take_while(|((r, _), _)| *r == round)
            .map(|(_, flow)| flow))
    }

    /// Bytes of each client in all rounds.
    pub fn clients(&self) -> BTreeMap<Option<ClientId>, Flow> {
        let mut out = BTreeMap::<_, Flow>::new();
        for ((_, client), flow) in &self.rows {
            out.entry(client.clone()).or_default().add(flow);
        }
        out
    }

    /// Bytes of all clients in all rounds.
    pub fn total(&self) -> Flow {
        sum(self.rows.values())
    }

    /// What the meter counted, up and down.
    pub fn metered(&self) -> (u64, u64) {
        self.meter.values().fold((0, 0), |(up, down), (u, d)| {
            (up.saturating_add(*u), down.saturating_add(*d))
        })
    }

    /// Whether the rows are what the meter counted, to the byte.
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

    fn flow(k: u64) -> Flow {
        Flow {
            update: k,
            waste: 2 * k,
            steps: 3 * k,
            snapshot: 4 * k,
            socket_up: 5 * k,
            socket_down: 9 * k,
        }
    }

    fn rows() -> Vec<Row> {
        vec![
            Row::Client {
                round: 1,
                client: Some("a".parse().unwrap()),
                flow: flow(1),
            },
            Row::Client {
                round: 1,
                client: None,
                flow: flow(10),
            },
            Row::Client {
                round: 2,
                client: Some("a".parse().unwrap()),
                flow: flow(100),
            },
            Row::Meter {
                round: 1,
                read: 55,
                written: 99,
            },
            Row::Meter {
                round: 2,
                read: 500,
                written: 900,
            },
        ]
    }

    #[test]
    fn rows_survive_storage_and_their_bytes_are_fixed() {
        for row in rows() {
            assert_eq!(Row::from_bytes(&row.to_bytes()), Some(row));
        }
        let bytes = Row::Meter {
            round: 1,
            read: 2,
            written: 3,
        }
        .to_bytes();
        assert_eq!(
            bytes,
            [
                1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0
            ]
        );
    }

    #[test]
    fn broken_rows_are_not_rows() {
        for row in rows() {
            let bytes = row.to_bytes();
            let names = matches!(row, Row::Client { client: Some(_), .. });
            let shortest = 2 + 8 + if matches!(row, Row::Meter { .. }) { 16 } else { 48 };
            for len in 0..shortest {
                assert_eq!(Row::from_bytes(&bytes[..len]), None);
            }
            let mut longer = bytes.clone();
            longer.push(b'/');
            assert_eq!(Row::from_bytes(&longer), None, "{names}");
            let mut other = bytes;
            other[0] = 2;
            assert_eq!(Row::from_bytes(&other), None);
        }
    }

    #[test]
    fn sums_are_by_round_by_client_and_in_all() {
        let mut ledger = Ledger::default();
        rows().iter().for_each(|row| ledger.add(row));
        assert_eq!(ledger.round(1), flow(11));
        assert_eq!(ledger.clients()[&Some("a".parse().unwrap())], flow(101));
        assert_eq!(ledger.total(), flow(111));
        assert!(ledger.is_balanced());
        ledger.add(&Row::Meter {
            round: 2,
            read: 1,
            written: 0,
        });
        assert!(!ledger.is_balanced());
    }
}
