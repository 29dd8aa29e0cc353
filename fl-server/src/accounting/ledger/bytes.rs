//! The bytes of a ledger row: version, then the row.

use fl_compress::wire::{self, Writer};

use crate::accounting::ledger::row::Row;

impl Row {
    pub(crate) const VERSION: u8 = 1;

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![Self::VERSION];
        Writer::new(&mut bytes).value(self);
        bytes
    }

    /// Reads a row; `None` if the bytes are not a row of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let row = wire::value(bytes.strip_prefix(&[Self::VERSION])?, "row").ok()?;
        // Sections out of order would be added up wrongly.
        let is_sorted = match &row {
            Self::Fidelity { sections, .. } => sections.is_sorted_by(|a, b| a.first < b.first),
            _ => true,
        };
        is_sorted.then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::ledger::fidelity::Fidelity;
    use crate::accounting::ledger::row::samples;
    use crate::accounting::ledger::section::Direction;

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
        assert_eq!(meter.to_bytes(), [1, 1, 1, 2, 3]);
        let flow: Vec<u8> = (1..=19).collect();
        let client = [&[1, 0, 7, 1, 4][..], b"anna", &flow].concat();
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
        // Signed numbers are doubled, negative ones less one from the other side: -3 is 5.
        let bytes = [1, 3, 9, 1, 1, 1, 2, 5, 7, 10, 12, 7, 8];
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
