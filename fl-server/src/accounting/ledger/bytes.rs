//! The bytes of a ledger row: version, kind, round, then its numbers, little-endian, and of a client's row its name.
//!
//! Version 1 knew clients' rows of six numbers and the meter's; it is frozen and still read. Version 2 added sections and
//! links, version 3 fidelity. A row is written in the version that has its kind, so that the links of older rounds hold.

use fl_compress::Digest;

use super::{Direction, Fidelity, Flow, Row, Section};

/// The first version.
const FIRST: u8 = 1;
/// That of clients, meter, sections and links, as they are written.
const VERSION: u8 = 2;
/// That of fidelity.
const THIRD: u8 = 3;

const CLIENT: u8 = 0;
const METER: u8 = 1;
const SECTIONS: u8 = 2;
const LINK: u8 = 3;
const FIDELITY: u8 = 4;

/// Bytes of a section.
const SECTION: usize = 2 * 4 + 9 * 8;
/// Bytes of a section's fidelity.
const FIGURES: usize = 2 * 4 + 4 * 8 + 2 * 2;

impl Row {
    /// Newest version that is read and written; those before it are read too.
    pub(crate) const VERSION: u8 = THIRD;

    /// The row as stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 + 8 * (Flow::FIELDS + 1) + 16);
        let kind = match self {
            Self::Client { .. } => [VERSION, CLIENT],
            Self::Meter { .. } => [VERSION, METER],
            Self::Sections { .. } => [VERSION, SECTIONS],
            Self::Link { .. } => [VERSION, LINK],
            Self::Fidelity { .. } => [THIRD, FIDELITY],
        };
        out.extend_from_slice(&kind);
        let mut number = |n: u64| out.extend_from_slice(&n.to_le_bytes());
        number(self.round());
        match self {
            Self::Client { client, flow, .. } => {
                flow.fields().into_iter().for_each(number);
                out.extend_from_slice(client.as_ref().map_or(&[][..], |name| name.as_str().as_bytes()));
            }
            Self::Meter { read, written, .. } => {
                number(*read);
                number(*written);
            }
            Self::Sections {
                direction, sections, ..
            } => {
                out.push(u8::from(*direction == Direction::Down));
                sections.iter().for_each(|section| write_section(section, &mut out));
            }
            Self::Fidelity {
                direction, sections, ..
            } => {
                out.push(u8::from(*direction == Direction::Down));
                sections.iter().for_each(|section| write_figures(section, &mut out));
            }
            Self::Link { link, .. } => out.extend_from_slice(&link.0),
        }
        out
    }

    /// Reads a row back; `None` if the bytes are not a row of a version known.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[version, kind], rest) = bytes.split_first_chunk::<2>()?;
        let (round, mut rest) = number(rest)?;
        let mut next = || {
            let (n, tail) = number(rest)?;
            rest = tail;
            Some(n)
        };
        match (version, kind) {
            (FIRST, CLIENT) => {
                let mut flow = Flow::default();
                let first = [
                    &mut flow.update,
                    &mut flow.refused,
                    &mut flow.steps,
                    &mut flow.snapshot,
                    &mut flow.socket_up,
                    &mut flow.socket_down,
                ];
                for field in first {
                    *field = next()?;
                }
                flow.settle_transport();
                Some(Self::Client {
                    round,
                    client: name(rest)?,
                    flow,
                })
            }
            (VERSION, CLIENT) => {
                let mut flow = Flow::default();
                for field in flow.fields_mut() {
                    *field = next()?;
                }
                Some(Self::Client {
                    round,
                    client: name(rest)?,
                    flow,
                })
            }
            (FIRST | VERSION, METER) => {
                let (read, written) = (next()?, next()?);
                rest.is_empty().then_some(Self::Meter { round, read, written })
            }
            (VERSION, SECTIONS) => {
                let (direction, rest) = direction(rest)?;
                let (sections, rest) = rest.as_chunks::<SECTION>();
                let sections = sections.iter().map(read_section).collect::<Option<_>>()?;
                rest.is_empty().then_some(Self::Sections {
                    round,
                    direction,
                    sections,
                })
            }
            (THIRD, FIDELITY) => {
                let (direction, rest) = direction(rest)?;
                let (sections, rest) = rest.as_chunks::<FIGURES>();
                let sections = sections.iter().map(read_figures).collect::<Option<Vec<_>>>()?;
                let in_order = sections.is_sorted_by(|a, b| a.first < b.first);
                (rest.is_empty() && in_order).then_some(Self::Fidelity {
                    round,
                    direction,
                    sections,
                })
            }
            (VERSION, LINK) => {
                let link = Digest(rest.try_into().ok()?);
                Some(Self::Link { round, link })
            }
            _ => None,
        }
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, tail) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*head), tail))
}

fn direction(bytes: &[u8]) -> Option<(Direction, &[u8])> {
    let (direction, rest) = bytes.split_first()?;
    match direction {
        0 => Some((Direction::Up, rest)),
        1 => Some((Direction::Down, rest)),
        _ => None,
    }
}

/// `None` for bytes that are no name; `Some(None)` for none.
fn name(bytes: &[u8]) -> Option<Option<fl_proto::ClientId>> {
    match std::str::from_utf8(bytes).ok()? {
        "" => Some(None),
        name => Some(Some(name.parse().ok()?)),
    }
}

fn write_section(section: &Section, out: &mut Vec<u8>) {
    let Section {
        first,
        tensors,
        parameters,
        frames,
        recipe,
        indices,
        scales,
        values,
        nonzeros,
        ranked,
        ranks,
    } = *section;
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&tensors.to_le_bytes());
    let numbers = [
        parameters, frames, recipe, indices, scales, values, nonzeros, ranked, ranks,
    ];
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

fn read_section(bytes: &[u8; SECTION]) -> Option<Section> {
    let (first, rest) = bytes.split_first_chunk()?;
    let (tensors, rest) = rest.split_first_chunk()?;
    let mut numbers = rest.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n));
    let mut next = || numbers.next();
    Some(Section {
        first: u32::from_le_bytes(*first),
        tensors: u32::from_le_bytes(*tensors),
        parameters: next()?,
        frames: next()?,
        recipe: next()?,
        indices: next()?,
        scales: next()?,
        values: next()?,
        nonzeros: next()?,
        ranked: next()?,
        ranks: next()?,
    })
}

fn write_figures(section: &Fidelity, out: &mut Vec<u8>) {
    let Fidelity {
        first,
        frames,
        cosine,
        least_cosine,
        kept,
        least_kept,
        age,
        oldest,
    } = *section;
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&oldest.to_le_bytes());
    let numbers = [frames, cosine as u64, kept as u64, age];
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    out.extend_from_slice(&least_cosine.to_le_bytes());
    out.extend_from_slice(&least_kept.to_le_bytes());
}

fn read_figures(bytes: &[u8; FIGURES]) -> Option<Fidelity> {
    let (first, rest) = bytes.split_first_chunk()?;
    let (oldest, rest) = rest.split_first_chunk()?;
    let (frames, rest) = number(rest)?;
    let (cosine, rest) = number(rest)?;
    let (kept, rest) = number(rest)?;
    let (age, rest) = number(rest)?;
    let (least_cosine, least_kept) = rest.split_first_chunk()?;
    Some(Fidelity {
        first: u32::from_le_bytes(*first),
        frames,
        cosine: cosine as i64,
        least_cosine: i16::from_le_bytes(*least_cosine),
        kept: kept as i64,
        least_kept: i16::from_le_bytes(least_kept.try_into().ok()?),
        age,
        oldest: u32::from_le_bytes(*oldest),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;
    use super::*;

    #[test]
    fn rows_survive_storage_and_their_bytes_are_fixed() {
        for row in rows() {
            assert_eq!(Row::from_bytes(&row.to_bytes()), Some(row));
        }
        let meter = Row::Meter {
            round: 1,
            read: 2,
            written: 3,
        };
        let fixed = [
            2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(meter.to_bytes(), fixed);
        let mut client = vec![2, 0];
        [7].into_iter()
            .chain(1..=18)
            .for_each(|n: u64| client.extend_from_slice(&n.to_le_bytes()));
        client.extend_from_slice(b"anna");
        let Some(Row::Client {
            round: 7,
            client: Some(name),
            flow,
        }) = Row::from_bytes(&client)
        else {
            panic!("not a client's row");
        };
        assert_eq!((name.as_str(), flow.update, flow.download_ms), ("anna", 1, 18));
        let row = Row::Client {
            round: 7,
            client: Some(name),
            flow,
        };
        assert_eq!(row.to_bytes(), client);
    }

    #[test]
    fn a_row_of_fidelity_has_these_bytes() {
        let section = Fidelity {
            first: 1,
            frames: 2,
            cosine: -3,
            least_cosine: -4,
            kept: 5,
            least_kept: 6,
            age: 7,
            oldest: 8,
        };
        let row = Row::Fidelity {
            round: 9,
            direction: Direction::Down,
            sections: vec![section],
        };
        let mut bytes = vec![3, 4, 9, 0, 0, 0, 0, 0, 0, 0, 1];
        bytes.extend_from_slice(&[1, 0, 0, 0, 8, 0, 0, 0]);
        for number in [2i64, -3, 5, 7] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&[0xfc, 0xff, 6, 0]);
        assert_eq!(row.to_bytes(), bytes);
        assert_eq!(Row::from_bytes(&bytes), Some(row));
        // Sections out of order would be added up wrongly.
        let twice = [&bytes[..], &bytes[11..]].concat();
        assert_eq!(Row::from_bytes(&twice), None);
    }

    #[test]
    fn rows_of_version_1_are_still_read() {
        let mut bytes = vec![1, 0];
        [3, 10, 20, 30, 40, 100, 200]
            .iter()
            .for_each(|n: &u64| bytes.extend_from_slice(&n.to_le_bytes()));
        bytes.extend_from_slice(b"anna");
        let flow = Flow {
            update: 10,
            refused: 20,
            transport_up: 70,
            socket_up: 100,
            steps: 30,
            snapshot: 40,
            transport_down: 130,
            socket_down: 200,
            ..Flow::default()
        };
        let row = Row::Client {
            round: 3,
            client: "anna".parse().ok(),
            flow,
        };
        assert_eq!(Row::from_bytes(&bytes), Some(row));
        let meter = [[1, 1].as_slice(), &[0; 24]].concat();
        assert!(matches!(Row::from_bytes(&meter), Some(Row::Meter { .. })));
    }

    #[test]
    fn broken_rows_are_not_rows() {
        for row in rows() {
            let bytes = row.to_bytes();
            let shortest = match row {
                Row::Client { .. } => 2 + 8 + 8 * Flow::FIELDS,
                Row::Sections { .. } | Row::Fidelity { .. } => 2 + 8 + 1,
                _ => bytes.len(),
            };
            for len in 0..shortest {
                assert_eq!(Row::from_bytes(&bytes[..len]), None);
            }
            assert_eq!(Row::from_bytes(&[&bytes[..], b"/"].concat()), None);
            let mut other = bytes;
            other[0] = 4;
            assert_eq!(Row::from_bytes(&other), None);
        }
    }
}
