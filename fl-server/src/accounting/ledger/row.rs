//! The ledger: what every byte on the socket was for, by round and client.
//!
//! A client's row says how many bytes its connections moved in a round and what they were for. Beside the rows stands
//! what the endpoint's meter counted on its own. The two must be equal to the byte. Rows add up: a round may have several
//! for one client. Section rows say which tensors the frames' bytes went to, and a link ends each closed round.

mod bytes;
mod fidelity;

use std::collections::BTreeMap;

pub use fidelity::Fidelity;
pub(crate) use fidelity::add_all;
use fl_compress::Digest;
use fl_proto::ClientId;
pub use fl_report::Flow;

/// The way that bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From clients: updates.
    Up,
    /// To clients: steps.
    Down,
}

impl Direction {
    /// `up` or `down`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// One section of a round's frames: a tensor, or small tensors coded together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Section {
    /// Place of its first tensor in the layout.
    pub first: u32,
    /// Tensors in it.
    pub tensors: u32,
    /// Their parameters.
    pub parameters: u64,
    /// Frames that are added up here.
    pub frames: u64,
    /// Bytes of recipes.
    pub recipe: u64,
    /// Bytes of indices.
    pub indices: u64,
    /// Bytes of scales.
    pub scales: u64,
    /// Bytes of values.
    pub values: u64,
    /// Decoded values that are not zero.
    pub nonzeros: u64,
    /// Frames in which it has a rank.
    pub ranked: u64,
    /// Their ranks.
    pub ranks: u64,
}

impl Section {
    /// Its name in reports: that of its tensor; of several tensors, their number. `name` gives a tensor's name by its place.
    pub(crate) fn name<'a>(&self, name: impl Fn(usize) -> Option<&'a str>) -> String {
        match self.tensors {
            1 => name(self.first as usize).unwrap_or_default().to_owned(),
            several => format!("{several} small tensors"),
        }
    }

    /// Adds the same section of other frames.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.frames, other.frames),
            (&mut self.recipe, other.recipe),
            (&mut self.indices, other.indices),
            (&mut self.scales, other.scales),
            (&mut self.values, other.values),
            (&mut self.nonzeros, other.nonzeros),
            (&mut self.ranked, other.ranked),
            (&mut self.ranks, other.ranks),
        ];
        sums.into_iter().for_each(|(own, more)| *own = own.saturating_add(more));
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
    /// Where the bytes of a closed round's frames went.
    Sections {
        /// The round.
        round: u64,
        /// Updates or step.
        direction: Direction,
        /// In the order of a frame.
        sections: Vec<Section>,
    },
    /// How faithful the frames of a round were. A round may have several for one direction: they add up.
    Fidelity {
        /// The round.
        round: u64,
        /// Updates or step.
        direction: Direction,
        /// In the order of their first tensors.
        sections: Vec<Fidelity>,
    },
    /// Ends a closed round: digest of its records and rows and of the link before; docs/rounds.md has the formula.
    Link {
        /// The round.
        round: u64,
        /// The digest.
        link: Digest,
    },
}

impl Row {
    /// The round that it belongs to.
    pub fn round(&self) -> u64 {
        match self {
            Self::Client { round, .. }
            | Self::Meter { round, .. }
            | Self::Sections { round, .. }
            | Self::Fidelity { round, .. }
            | Self::Link { round, .. } => *round,
        }
    }
}

/// The ledger of a run, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Bytes by round and client; without a name, of connections that never said who they were.
    pub rows: BTreeMap<(u64, Option<ClientId>), Flow>,
    /// What the meter counted, up and down, by round.
    pub meter: BTreeMap<u64, (u64, u64)>,
    /// Sections of the frames, by round, direction and place.
    pub sections: BTreeMap<(u64, Direction), Vec<Section>>,
    /// Fidelity of the sections, by round and direction.
    pub fidelity: BTreeMap<(u64, Direction), Vec<Fidelity>>,
    /// The links of the closed rounds.
    pub links: BTreeMap<u64, Digest>,
}

impl Ledger {
    /// Adds one row.
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
            Row::Link { round, link } => {
                self.links.insert(round, link);
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

    /// Bytes of all clients by round.
    pub fn rounds(&self) -> BTreeMap<u64, Flow> {
        let mut out = BTreeMap::<_, Flow>::new();
        for ((round, _), flow) in &self.rows {
            out.entry(*round).or_default().add(flow);
        }
        out
    }

    /// What the meter counted in one round, up and down.
    pub fn metered_in(&self, round: u64) -> (u64, u64) {
        self.meter.get(&round).copied().unwrap_or_default()
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

/// A part of a whole; `None` if that is nothing.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
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
            refused: 2 * k,
            steps: 3 * k,
            snapshot: 4 * k,
            socket_up: 5 * k,
            socket_down: 9 * k,
            ..Flow::default()
        }
    }

    pub(super) fn rows() -> Vec<Row> {
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
            Row::Link {
                round: 2,
                link: Digest::of(b"2"),
            },
        ]
    }

    #[test]
    fn sums_are_by_round_by_client_and_in_all() {
        let mut ledger = Ledger::default();
        rows().into_iter().for_each(|row| ledger.add(row));
        assert_eq!(ledger.round(1), flow(11));
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
