//! The bytes of a ledger row: version, kind, round, then its numbers, little-endian; in a client's row, its name at the end.
//!
//! Version 1 has rows of clients with six numbers, and rows of the meter; it is frozen and still read. Version 2 added
//! sections and entries, version 3 fidelity, version 4 the bytes of the base, last in the row of a client that fetched any. A
//! row is written in the version that introduced what it has, so that the hash chain's entries of older rounds stay valid.

use fl_compress::wire::{Reader, Writer};
use fl_compress::{Digest, Error};
use fl_report::Flow;

use crate::accounting::ledger::fidelity::Fidelity;
use crate::accounting::ledger::row::Row;
use crate::accounting::ledger::section::{Direction, Section};

const FIRST: u8 = 1;
/// Version of the rows of clients, meter, sections and entries.
const SECOND: u8 = 2;
/// Version of the rows of fidelity.
const THIRD: u8 = 3;
/// Version of the rows of clients with bytes of the base.
const FOURTH: u8 = 4;

const CLIENT: u8 = 0;
const METER: u8 = 1;
const SECTIONS: u8 = 2;
const ENTRY: u8 = 3;
const FIDELITY: u8 = 4;

impl Row {
    /// The newest version; older ones are read too.
    pub(crate) const VERSION: u8 = FOURTH;

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 + 8 * (Flow::FIELDS + 1) + 16);
        let mut out = Writer::new(&mut bytes);
        out.bytes(&match self {
            Self::Client { flow, .. } if flow.base > 0 => [FOURTH, CLIENT],
            Self::Client { .. } => [SECOND, CLIENT],
            Self::Meter { .. } => [SECOND, METER],
            Self::Sections { .. } => [SECOND, SECTIONS],
            Self::Entry { .. } => [SECOND, ENTRY],
            Self::Fidelity { .. } => [THIRD, FIDELITY],
        });
        out.u64(self.round());
        match self {
            Self::Client { client, flow, .. } => {
                let mut flow = *flow;
                second(&mut flow).into_iter().for_each(|n| out.u64(*n));
                if flow.base > 0 {
                    out.u64(flow.base);
                }
                out.bytes(client.as_ref().map_or(&[], |name| name.as_str().as_bytes()));
            }
            Self::Meter { read, written, .. } => {
                out.u64(*read);
                out.u64(*written);
            }
            Self::Sections {
                direction, sections, ..
            } => {
                out.u8(u8::from(*direction == Direction::Down));
                sections.iter().for_each(|section| write_section(section, &mut out));
            }
            Self::Fidelity {
                direction, sections, ..
            } => {
                out.u8(u8::from(*direction == Direction::Down));
                sections.iter().for_each(|section| write_fidelity(section, &mut out));
            }
            Self::Entry { entry, .. } => out.bytes(&entry.0),
        }
        bytes
    }

    /// Reads a row; `None` if the bytes are not a row of a known version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let row = read(&mut from).ok()?;
        from.finish("end").ok()?;
        Some(row)
    }
}

fn read(from: &mut Reader<'_>) -> Result<Row, Error> {
    let [version, kind] = from.array("version and kind")?;
    let round = from.u64("round")?;
    Ok(match (version, kind) {
        (FIRST, CLIENT) => {
            let mut flow = Flow::default();
            for field in [
                &mut flow.update,
                &mut flow.refused,
                &mut flow.steps,
                &mut flow.snapshot,
                &mut flow.socket_up,
                &mut flow.socket_down,
            ] {
                *field = from.u64("bytes")?;
            }
            flow.settle_transport();
            let client = read_name(from)?;
            Row::Client { round, client, flow }
        }
        (SECOND | FOURTH, CLIENT) => {
            let mut flow = Flow::default();
            for field in second(&mut flow) {
                *field = from.u64("bytes")?;
            }
            if version == FOURTH {
                flow.base = from.u64("base")?;
                if flow.base == 0 {
                    return Err(from.corrupt("base"));
                }
            }
            let client = read_name(from)?;
            Row::Client { round, client, flow }
        }
        (FIRST | SECOND, METER) => Row::Meter {
            round,
            read: from.u64("read")?,
            written: from.u64("written")?,
        },
        (SECOND, SECTIONS) => Row::Sections {
            round,
            direction: read_direction(from)?,
            sections: read_all(from, read_section)?,
        },
        (THIRD, FIDELITY) => {
            let direction = read_direction(from)?;
            let sections = read_all(from, read_fidelity)?;
            if !sections.is_sorted_by(|a, b| a.first < b.first) {
                return Err(from.corrupt("order of sections"));
            }
            Row::Fidelity {
                round,
                direction,
                sections,
            }
        }
        (SECOND, ENTRY) => Row::Entry {
            round,
            entry: from.array("entry").map(Digest)?,
        },
        _ => return Err(from.corrupt("version and kind")),
    })
}

/// The numbers of a client's row of version 2, in their order.
fn second(flow: &mut Flow) -> [&mut u64; 18] {
    [
        &mut flow.update,
        &mut flow.refused,
        &mut flow.aborted,
        &mut flow.evaluation,
        &mut flow.control_up,
        &mut flow.heartbeat_up,
        &mut flow.transport_up,
        &mut flow.socket_up,
        &mut flow.steps,
        &mut flow.snapshot,
        &mut flow.control_down,
        &mut flow.heartbeat_down,
        &mut flow.transport_down,
        &mut flow.socket_down,
        &mut flow.connections,
        &mut flow.retries,
        &mut flow.upload_ms,
        &mut flow.download_ms,
    ]
}

fn read_direction(from: &mut Reader<'_>) -> Result<Direction, Error> {
    match from.u8("direction")? {
        0 => Ok(Direction::Up),
        1 => Ok(Direction::Down),
        _ => Err(from.corrupt("direction")),
    }
}

/// The rest of the bytes; empty for no name.
fn read_name(from: &mut Reader<'_>) -> Result<Option<fl_proto::ClientId>, Error> {
    let name = from.take(from.left(), "name")?;
    let name = std::str::from_utf8(name).map_err(|_| from.corrupt("name"))?;
    if name.is_empty() {
        return Ok(None);
    }
    name.parse().map(Some).map_err(|_| from.corrupt("name"))
}

/// Items to the end of the bytes.
fn read_all<T>(from: &mut Reader<'_>, read: impl Fn(&mut Reader<'_>) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    let mut items = Vec::new();
    while from.left() > 0 {
        items.push(read(from)?);
    }
    Ok(items)
}

fn write_section(section: &Section, out: &mut Writer<'_>) {
    out.u32(section.first);
    out.u32(section.tensors);
    out.u64(section.parameters);
    let mut section = *section;
    section.sums_mut().into_iter().for_each(|sum| out.u64(*sum));
}

fn read_section(from: &mut Reader<'_>) -> Result<Section, Error> {
    let mut section = Section {
        first: from.u32("first")?,
        tensors: from.u32("tensors")?,
        parameters: from.u64("parameters")?,
        ..Section::default()
    };
    for sum in section.sums_mut() {
        *sum = from.u64("section")?;
    }
    Ok(section)
}

fn write_fidelity(section: &Fidelity, out: &mut Writer<'_>) {
    out.u32(section.first);
    out.u32(section.oldest);
    for number in [section.frames, section.cosine as u64, section.kept as u64, section.age] {
        out.u64(number);
    }
    out.i16(section.least_cosine);
    out.i16(section.least_kept);
}

fn read_fidelity(from: &mut Reader<'_>) -> Result<Fidelity, Error> {
    let (first, oldest) = (from.u32("first")?, from.u32("oldest")?);
    Ok(Fidelity {
        first,
        frames: from.u64("frames")?,
        cosine: from.u64("cosine")? as i64,
        kept: from.u64("kept")? as i64,
        age: from.u64("age")?,
        least_cosine: from.i16("least_cosine")?,
        least_kept: from.i16("least_kept")?,
        oldest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::ledger::row::samples;

    /// Rows of every kind and version that is written.
    fn rows() -> Vec<Row> {
        let flow = Flow {
            base: 5,
            socket_down: 6,
            ..Flow::default()
        };
        let fetched = Row::Client {
            round: 2,
            client: "b".parse().ok(),
            flow,
        };
        samples::rows().into_iter().chain([fetched]).collect()
    }

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
    fn a_row_with_bytes_of_the_base_has_them_after_the_other_numbers_and_before_the_name() {
        let mut bytes = vec![4, 0];
        [7].into_iter()
            .chain(1..=19)
            .for_each(|n: u64| bytes.extend_from_slice(&n.to_le_bytes()));
        bytes.extend_from_slice(b"anna");
        let Some(Row::Client { round: 7, client, flow }) = Row::from_bytes(&bytes) else {
            panic!("not a client's row");
        };
        assert_eq!((flow.update, flow.snapshot, flow.control_down), (1, 10, 11));
        assert_eq!((flow.download_ms, flow.base), (18, 19));
        let row = Row::Client { round: 7, client, flow };
        assert_eq!(row.to_bytes(), bytes);
        // A row has one form: without such bytes that of version 2.
        bytes[2 + 8 + 8 * 18..][..8].fill(0);
        assert_eq!(Row::from_bytes(&bytes), None);
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
                Row::Client { flow, .. } => 2 + 8 + 8 * (18 + usize::from(flow.base > 0)),
                Row::Sections { .. } | Row::Fidelity { .. } => 2 + 8 + 1,
                _ => bytes.len(),
            };
            for len in 0..shortest {
                assert_eq!(Row::from_bytes(&bytes[..len]), None);
            }
            assert_eq!(Row::from_bytes(&[&bytes[..], b"/"].concat()), None);
            let mut other = bytes;
            other[0] = 5;
            assert_eq!(Row::from_bytes(&other), None);
        }
    }
}
