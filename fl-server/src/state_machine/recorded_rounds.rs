//! The rounds of a run as its records tell them, for everything that reads a run back: replay, audit, what-if.

use std::collections::BTreeMap;

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::state_machine::pending_work::PendingWork;
use crate::state_machine::versions::Versions;
use crate::storage::record::{Accepted, Record, RecordedStep};

/// A rollback: a version whose model is that of an older one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollback {
    pub version: u64,
    pub to: u64,
    /// Digest of the model of both.
    pub model: Digest,
}

/// A round that took updates or closed.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRound {
    /// The last rollback since the round before.
    pub base: Option<Rollback>,
    pub round: u64,
    pub updates: BTreeMap<ClientId, Accepted>,
    /// Updates that were accepted before their clients were excluded.
    pub excluded: Vec<(ClientId, Accepted)>,
    /// `None` if the round is open, or was open when the run was rolled back.
    pub step: Option<RecordedStep>,
}

impl RecordedRound {
    /// What closing the round aggregates.
    pub fn work(&self) -> PendingWork {
        PendingWork::of(self.round, self.updates.iter())
    }
}

/// The rounds of a run, in order. Reads each record once, and holds one open round and how the versions were made.
#[derive(Debug)]
pub struct RecordedRounds<I> {
    records: I,
    versions: Versions,
    base: Option<Rollback>,
    open: Option<RecordedRound>,
}

impl<E, I: Iterator<Item = Result<Record, E>>> RecordedRounds<I> {
    pub fn of(records: impl IntoIterator<IntoIter = I>) -> Self {
        Self {
            records: records.into_iter(),
            versions: Versions::default(),
            base: None,
            open: None,
        }
    }

    /// The versions that the records read so far have made.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Adds a record. Returns the round that it ends, if it ends one.
    fn add(&mut self, record: Record) -> Option<RecordedRound> {
        self.versions.add(&record);
        match record {
            Record::UpdateAccepted { round, client, update } => {
                self.open(round).updates.insert(client, update);
            }
            Record::Excluded { round, client, .. } => {
                let open = self.open(round);
                open.excluded.extend(open.updates.remove_entry(&client));
            }
            Record::RolledBack { version, to, model, .. } => {
                self.base = Some(Rollback { version, to, model });
                return self.open.take();
            }
            Record::RoundClosed { round, step, .. } => {
                self.open(round).step = Some(step);
                return self.open.take();
            }
            _ => {}
        }
        None
    }

    fn open(&mut self, round: u64) -> &mut RecordedRound {
        self.open.get_or_insert_with(|| RecordedRound {
            base: self.base.take(),
            round,
            updates: BTreeMap::new(),
            excluded: Vec::new(),
            step: None,
        })
    }
}

impl<E, I: Iterator<Item = Result<Record, E>>> Iterator for RecordedRounds<I> {
    type Item = Result<RecordedRound, E>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(record) = self.records.next() {
            match record.map(|record| self.add(record)) {
                Ok(None) => {}
                Ok(Some(round)) => return Some(Ok(round)),
                Err(error) => return Some(Err(error)),
            }
        }
        self.open.take().map(Ok)
    }
}
