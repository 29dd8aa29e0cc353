//! The hash chain of rounds: each closed round has an entry, the digest of everything recorded since the entry before.
//!
//! `entry(r) = BLAKE3(CONTEXT, entry(r-1), BLAKE3(records), BLAKE3(rows))`. The records are those after the close of round
//! r-1, up to that of round r; the rows are the ledger's rows after entry r-1; each is preceded by its length (u32,
//! little-endian). The entry before the first is 32 zero bytes. A flipped byte in a record or row changes every later entry.

use fl_compress::Digest;

use crate::accounting::ledger::Row;
use crate::storage::record::Record;

/// Separates this use of the hash from all others.
const CONTEXT: &[u8] = b"fl-server chain of rounds, version 1";

/// The state of the next entry.
#[derive(Debug, Clone)]
pub(crate) struct HashChain {
    before: Digest,
    records: blake3::Hasher,
    rows: blake3::Hasher,
}

impl Default for HashChain {
    fn default() -> Self {
        Self::after(Digest([0; 32]))
    }
}

impl HashChain {
    fn after(before: Digest) -> Self {
        Self {
            before,
            records: blake3::Hasher::new(),
            rows: blake3::Hasher::new(),
        }
    }

    /// Adds a record. [`HashChain::close`] follows the record that closes a round, before any other record.
    pub(crate) fn record(&mut self, record: &Record) {
        hash(&mut self.records, &record.to_bytes());
    }

    /// Adds a row of the ledger that is not an entry.
    pub(crate) fn row(&mut self, row: &Row) {
        hash(&mut self.rows, &row.to_bytes());
    }

    pub(crate) fn close(&mut self) -> Digest {
        let mut entry = blake3::Hasher::new();
        entry.update(CONTEXT);
        entry.update(&self.before.0);
        entry.update(self.records.finalize().as_bytes());
        entry.update(self.rows.finalize().as_bytes());
        let entry = Digest(*entry.finalize().as_bytes());
        *self = Self::after(entry);
        entry
    }
}

fn hash(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u32).to_le_bytes());
    hasher.update(bytes);
}

/// The entry of a closed round, as its records and rows make it, and as it is stored.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) round: u64,
    pub(crate) computed: Digest,
    pub(crate) stored: Digest,
}

/// Recomputes the entries of a run from its records and rows. Returns them, and the chain after the last.
pub(crate) fn entries<E>(
    records: impl IntoIterator<Item = Result<Record, E>>,
    rows: impl IntoIterator<Item = Result<Row, E>>,
) -> Result<(Vec<Link>, HashChain), E> {
    let mut rows = rows.into_iter();
    let mut records = records.into_iter();
    let mut entries = Vec::new();
    let mut chain = HashChain::default();
    loop {
        let mut entry = None;
        for row in rows.by_ref() {
            match row? {
                Row::Entry { round, entry: stored } => {
                    entry = Some((round, stored));
                    break;
                }
                row => chain.row(&row),
            }
        }
        for record in records.by_ref() {
            let record = record?;
            chain.record(&record);
            if matches!(record, Record::RoundClosed { round, .. } if entry.is_some_and(|(of, _)| of == round)) {
                break;
            }
        }
        let Some((round, stored)) = entry else {
            return Ok((entries, chain));
        };
        let computed = chain.close();
        entries.push(Link {
            round,
            computed,
            stored,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::storage::record::samples::closed;

    fn records() -> Vec<Record> {
        let resumed = |at| Record::Resumed { at, until: 0 };
        vec![
            resumed(1),
            closed(1, 1),
            resumed(2),
            resumed(3),
            closed(2, 2),
            resumed(4),
        ]
    }

    fn rows(entries: &[Digest]) -> Vec<Row> {
        let meter = |round| Row::Meter {
            round,
            read: round,
            written: 0,
        };
        let entry = |round: u64| Row::Entry {
            round,
            entry: entries.get(round as usize - 1).copied().unwrap_or(Digest([0; 32])),
        };
        vec![meter(1), entry(1), meter(1), meter(2), entry(2), meter(3)]
    }

    fn folded(records: Vec<Record>, rows: Vec<Row>) -> Vec<(u64, Digest)> {
        let ok = |record| Ok::<_, Infallible>(record);
        let (links, _) = entries(records.into_iter().map(ok), rows.into_iter().map(Ok)).unwrap();
        links.into_iter().map(|link| (link.round, link.computed)).collect()
    }

    #[test]
    fn entries_are_the_same_when_they_are_made_and_when_they_are_checked() {
        let (mut chain, mut made) = (HashChain::default(), Vec::new());
        let (records, rows) = (records(), rows(&[]));
        chain.record(&records[0]);
        chain.record(&records[1]);
        chain.row(&rows[0]);
        made.push((1, chain.close()));
        records[2..5].iter().for_each(|record| chain.record(record));
        rows[2..4].iter().for_each(|row| chain.row(row));
        made.push((2, chain.close()));
        assert_eq!(folded(records, rows), made);
    }

    #[test]
    fn a_change_shows_in_its_entry_and_all_later_ones() {
        let good = folded(records(), rows(&[]));
        let mut changed = records();
        changed[3] = Record::Resumed { at: 9, until: 0 };
        let found = folded(changed, rows(&[]));
        assert_eq!(found[0], good[0]);
        assert_ne!(found[1], good[1]);
        let mut changed = rows(&[]);
        changed[0] = Row::Meter {
            round: 1,
            read: 7,
            written: 0,
        };
        let found = folded(records(), changed);
        assert!(found.iter().zip(&good).all(|(found, good)| found != good));
    }
}
