//! The chain of rounds: each closed round has a link, the digest of everything that was recorded since the link before.
//!
//! `link(r) = BLAKE3(CONTEXT, link(r-1), BLAKE3(records), BLAKE3(rows))`, where records are those after the close of round
//! r-1 up to that of round r, and rows are the ledger's after the link before, each with its length (u32, little-endian)
//! in front. The link before the first is 32 zero bytes. A flipped byte in a record or row changes every link after it.

use fl_compress::Digest;

use crate::accounting::ledger::Row;
use crate::storage::record::Record;

/// Tells this use of the hash from all others.
const CONTEXT: &[u8] = b"fl-server chain of rounds, version 1";

/// What will go into the next link.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    before: Digest,
    records: blake3::Hasher,
    rows: blake3::Hasher,
}

impl Default for Chain {
    fn default() -> Self {
        Self::after(Digest([0; 32]))
    }
}

impl Chain {
    /// Goes on after a link.
    fn after(before: Digest) -> Self {
        Self {
            before,
            records: blake3::Hasher::new(),
            rows: blake3::Hasher::new(),
        }
    }

    /// Takes a record in. The link of a round is made when that of its close is in, before any other.
    pub(crate) fn record(&mut self, record: &Record) {
        hash(&mut self.records, &record.to_bytes());
    }

    /// Takes a row of the ledger in, which is not a link.
    pub(crate) fn row(&mut self, row: &Row) {
        hash(&mut self.rows, &row.to_bytes());
    }

    /// The link of what was taken in; what comes from here on goes into the next.
    pub(crate) fn close(&mut self) -> Digest {
        let mut link = blake3::Hasher::new();
        link.update(CONTEXT);
        link.update(&self.before.0);
        link.update(self.records.finalize().as_bytes());
        link.update(self.rows.finalize().as_bytes());
        let link = Digest(*link.finalize().as_bytes());
        *self = Self::after(link);
        link
    }
}

fn hash(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u32).to_le_bytes());
    hasher.update(bytes);
}

/// The links that a run's records and rows come to.
///
/// # Errors
/// Those of the records and rows.
pub(crate) fn links<E>(
    records: impl IntoIterator<Item = Result<Record, E>>,
    rows: impl IntoIterator<Item = Result<Row, E>>,
) -> Result<(Vec<(u64, Digest)>, Chain), E> {
    let (mut rows, mut links, mut chain) = (rows.into_iter(), Vec::new(), Chain::default());
    // A run that an older program began has closed rounds without a link: they go into the first that there is.
    let mut records = records.into_iter();
    let mut segments = |chain: &mut Chain| -> Result<Option<u64>, E> {
        for row in rows.by_ref() {
            match row? {
                Row::Link { round, .. } => return Ok(Some(round)),
                row => chain.row(&row),
            }
        }
        Ok(None)
    };
    loop {
        let link = segments(&mut chain)?;
        for record in records.by_ref() {
            let record = record?;
            chain.record(&record);
            if matches!(record, Record::RoundClosed { round, .. } if Some(round) == link) {
                break;
            }
        }
        let Some(round) = link else { return Ok((links, chain)) };
        links.push((round, chain.close()));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use fl_compress::Stages;

    use super::*;

    fn records() -> Vec<Record> {
        let digest = Digest::of(b"");
        let closed = |round| Record::RoundClosed {
            round,
            frame: digest,
            frame_len: 1,
            stages: Stages::default(),
            model: digest,
            at: round,
        };
        let resumed = |at| Record::Resumed { at, until: 0 };
        vec![resumed(1), closed(1), resumed(2), resumed(3), closed(2), resumed(4)]
    }

    fn rows(links: &[Digest]) -> Vec<Row> {
        let meter = |round| Row::Meter {
            round,
            read: round,
            written: 0,
        };
        let link = |round: u64| Row::Link {
            round,
            link: links.get(round as usize - 1).copied().unwrap_or(Digest([0; 32])),
        };
        vec![meter(1), link(1), meter(1), meter(2), link(2), meter(3)]
    }

    fn folded(records: Vec<Record>, rows: Vec<Row>) -> Vec<(u64, Digest)> {
        let ok = |record| Ok::<_, Infallible>(record);
        links(records.into_iter().map(ok), rows.into_iter().map(Ok)).unwrap().0
    }

    #[test]
    fn links_are_the_same_as_they_are_made_and_as_they_are_checked() {
        let (mut chain, mut made) = (Chain::default(), Vec::new());
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
    fn a_change_shows_in_its_link_and_all_after() {
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
