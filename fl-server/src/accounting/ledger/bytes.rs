//! The bytes of a ledger row: version, kind, fields.

use fl_compress::Error;
use fl_compress::wire::{Reader, Writer};
use fl_report::Flow;

use crate::accounting::ledger::fidelity::Fidelity;
use crate::accounting::ledger::row::Row;
use crate::accounting::ledger::section::{Direction, Section};
use crate::storage::field::{Field, fields, kinds};

kinds!(Row {
    1 => Client { round, client, flow },
    2 => Meter { round, read, written },
    3 => Sections { round, direction, sections },
    4 => Fidelity { round, direction, sections },
    5 => Entry { round, entry },
});
fields!(Section {
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
});
fields!(Fidelity {
    first,
    oldest,
    frames,
    cosine,
    kept,
    age,
    least_cosine,
    least_kept,
});

/// Its fields in the order of their declaration.
impl Field for Flow {
    fn write(&self, out: &mut Writer<'_>) {
        self.fields().into_iter().for_each(|number| out.u64(number));
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        let mut flow = Self::default();
        for field in flow.fields_mut() {
            *field = from.u64(what)?;
        }
        Ok(flow)
    }
}

impl Field for Direction {
    fn write(&self, out: &mut Writer<'_>) {
        out.u8(u8::from(*self == Self::Down));
    }

    fn read(from: &mut Reader<'_>, what: &str) -> Result<Self, Error> {
        Ok(if from.flag(what)? { Self::Down } else { Self::Up })
    }
}

impl Row {
    pub(crate) const VERSION: u8 = 1;

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![Self::VERSION];
        self.write(&mut Writer::new(&mut bytes));
        bytes
    }

    /// Reads a row; `None` if the bytes are not a row of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let version = from.u8("version").ok()?;
        let row = Self::read(&mut from, "kind").ok()?;
        from.finish("end").ok()?;
        // Sections out of order would be added up wrongly.
        let is_sorted = match &row {
            Self::Fidelity { sections, .. } => sections.is_sorted_by(|a, b| a.first < b.first),
            _ => true,
        };
        (version == Self::VERSION && is_sorted).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::ledger::row::samples;

    #[test]
    fn rows_survive_storage_and_their_bytes_are_fixed() {
        for row in samples::rows() {
            assert_eq!(Row::from_bytes(&row.to_bytes()), Some(row));
        }
        let (read, written) = (2, 3);
        let meter = Row::Meter {
            round: 1,
            read,
            written,
        };
        let numbers = |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(meter.to_bytes(), [&[1, 2][..], &numbers(&[1, 2, 3])].concat());
        let flow: Vec<u64> = (1..=19).collect();
        let client = [&[1, 1][..], &numbers(&[7]), &[1, 4, 0], b"anna", &numbers(&flow)].concat();
        let row = Row::from_bytes(&client).unwrap();
        assert_eq!(row.to_bytes(), client);
        let Row::Client {
            round: 7,
            client: Some(name),
            flow,
        } = row
        else {
            panic!("not a client's row");
        };
        assert_eq!(
            (name.as_str(), flow.update, flow.base, flow.download_ms),
            ("anna", 1, 11, 19)
        );
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
        let row = |sections| Row::Fidelity {
            round: 9,
            direction: Direction::Down,
            sections,
        };
        let mut bytes = vec![1, 4, 9, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0];
        bytes.extend_from_slice(&[1, 0, 0, 0, 8, 0, 0, 0]);
        for number in [2i64, -3, 5, 7] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&[0xfc, 0xff, 6, 0]);
        assert_eq!(row(vec![section]).to_bytes(), bytes);
        assert_eq!(Row::from_bytes(&bytes), Some(row(vec![section])));
        assert_eq!(Row::from_bytes(&row(vec![section; 2]).to_bytes()), None, "out of order");
    }

    #[test]
    fn broken_rows_are_not_rows() {
        for row in samples::rows() {
            let bytes = row.to_bytes();
            for len in 0..bytes.len() {
                assert_eq!(Row::from_bytes(&bytes[..len]), None);
            }
            assert_eq!(Row::from_bytes(&[&bytes[..], b"/"].concat()), None);
            for other in [0, 2] {
                assert_eq!(Row::from_bytes(&[&[other], &bytes[1..]].concat()), None);
            }
        }
    }
}
