//! One run in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fl_compress::{Digest, wire};
use fl_proto::RunName;
use serde::{Deserialize, Serialize};

use crate::storage::record::{Record, RecordError};
use crate::storage::store::database::{Batch, Bytes, Database};
use crate::storage::store::error::StoreError;
use crate::storage::store::format::{META, RECORD, ROW, TAIL, prefix, seal, sequence, unseal};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub version: u64,
    pub blob: Digest,
}

/// The named values of a run's checkpoints, newest first. If the newest is damaged, the older one and the updates after it
/// give the same model.
pub const CHECKPOINTS: [&str; 2] = ["checkpoint", "checkpoint-before"];

/// One run in the store; clones share it. One caller at a time writes.
#[derive(Debug, Clone)]
pub struct RunStore {
    database: Database,
    name: RunName,
    id: u32,
    records: Arc<AtomicU64>,
    rows: Arc<AtomicU64>,
}

/// The number after the last key of a table.
fn next(database: &Database, table: u8, run: u32) -> Result<u64, StoreError> {
    let last = database.last_key(&prefix(table, run))?;
    Ok(last.map_or(0, |key| sequence(&key).map_or(u64::MAX, |n| n.saturating_add(1))))
}

impl RunStore {
    pub(super) fn open(database: Database, name: RunName, id: u32) -> Result<Self, StoreError> {
        Ok(Self {
            records: Arc::new(AtomicU64::new(next(&database, RECORD, id)?)),
            rows: Arc::new(AtomicU64::new(next(&database, ROW, id)?)),
            database,
            name,
            id,
        })
    }

    pub fn name(&self) -> &RunName {
        &self.name
    }

    pub fn len(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn rows_len(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Appends records and ledger rows, all or none, with one flush; durable on return. The rows replace the
    /// [tail](RunStore::tail) and must include its bytes. Blocks.
    ///
    /// # Errors
    /// `Stopped`, `Broken`, `Disk`. After an error, every further write returns `Stopped`.
    pub fn append(&self, records: &[Record], rows: &[Vec<u8>]) -> Result<(), StoreError> {
        if records.is_empty() && rows.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        let first = self.len();
        let first_row = self.rows_len();
        for (seq, record) in (first..).zip(records) {
            batch.insert(self.key(RECORD, seq), record.to_bytes());
        }
        for (seq, row) in (first_row..).zip(rows) {
            batch.insert(self.key(ROW, seq), seal(row));
        }
        if !rows.is_empty() {
            batch.remove(&prefix(TAIL, self.id));
        }
        self.database.write(batch)?;
        self.records.store(first + records.len() as u64, Ordering::Relaxed);
        self.rows.store(first_row + rows.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The records, in the order of appending.
    ///
    /// # Errors
    /// Each item: `Value`, `Gap`, `Broken`.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, StoreError>> {
        let run = self.clone();
        self.values(RECORD).map(move |value| {
            let (number, value) = value?;
            Record::from_bytes(&value).map_err(|why| run.value("record", number.to_string(), why))
        })
    }

    /// The ledger rows, in the order of appending.
    ///
    /// # Errors
    /// As [`RunStore::records`].
    pub fn rows(&self) -> impl Iterator<Item = Result<Vec<u8>, StoreError>> {
        let run = self.clone();
        self.values(ROW).map(move |value| {
            let (number, value) = value?;
            let row = unseal(&value).map(<[u8]>::to_vec);
            row.map_err(|why| run.value("ledger row", number.to_string(), why))
        })
    }

    /// The tail of the ledger: rows of the bytes after the last appended row. A later tail replaces it.
    ///
    /// # Errors
    /// `Value`, `Broken`.
    pub fn tail(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let Some(value) = self.database.read(&prefix(TAIL, self.id))? else {
            return Ok(Vec::new());
        };
        let rows = unseal(&value).and_then(|rows| Ok(wire::value(rows, "rows")?));
        rows.map_err(|why| self.value("ledger row", "the tail".to_owned(), why))
    }

    /// Replaces the tail of the ledger; durable on return. Blocks.
    ///
    /// # Errors
    /// As [`RunStore::append`].
    pub fn set_tail(&self, rows: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.insert(&prefix(TAIL, self.id), seal(&wire::bytes_of(&rows)));
        self.database.write(batch)
    }

    /// A small named value, such as the plan's text, the layout or the last checkpoint.
    ///
    /// # Errors
    /// `Value`, `Broken`.
    pub fn meta(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.database.read(&self.meta_key(key))?;
        let value = value.map(|value| unseal(&value).map(<[u8]>::to_vec)).transpose();
        value.map_err(|why| self.value("entry", key.to_owned(), why))
    }

    /// Sets a small named value; durable on return. Blocks.
    ///
    /// # Errors
    /// As [`RunStore::append`].
    pub fn set_meta(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.set_metas(&[(key, value)], &[])
    }

    /// Sets and removes named values, all or none.
    fn set_metas(&self, set: &[(&str, &[u8])], remove: &[&str]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for (key, value) in set {
            batch.insert(self.meta_key(key), seal(value));
        }
        for key in remove {
            batch.remove(self.meta_key(key));
        }
        self.database.write(batch)
    }

    /// The checkpoints of the model, newest first.
    ///
    /// # Errors
    /// `Value`, `Broken`.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        let mut all = Vec::new();
        for key in CHECKPOINTS {
            let Some(value) = self.meta(key)? else { break };
            let checkpoint = wire::value(&value, "checkpoint");
            all.push(checkpoint.map_err(|why| self.value("entry", key.to_owned(), why.into()))?);
        }
        Ok(all)
    }

    /// Replaces the list of checkpoints, newest first, at most [`CHECKPOINTS`]; their blobs are durable already. `also`: named
    /// values that are set with them, all or none. Durable on return. Blocks.
    ///
    /// # Errors
    /// As [`RunStore::append`].
    pub fn set_checkpoints(&self, kept: &[Checkpoint], also: &[(&str, &[u8])]) -> Result<(), StoreError> {
        let values: Vec<_> = kept.iter().map(wire::bytes_of).collect();
        let named = CHECKPOINTS.into_iter().zip(values.iter().map(Vec::as_slice));
        let set: Vec<_> = named.chain(also.iter().copied()).collect();
        self.set_metas(&set, CHECKPOINTS.get(kept.len()..).unwrap_or_default())
    }

    /// The values of a table with their numbers, which must be consecutive from 0.
    fn values(&self, table: u8) -> impl Iterator<Item = Result<(u64, Bytes), StoreError>> + use<> {
        let run = self.name.clone();
        let entries = self.database.scan(&prefix(table, self.id)).zip(0..);
        entries.map(move |(entry, number)| {
            let (key, value) = entry?;
            if sequence(&key) != Some(number) {
                let run = run.clone();
                return Err(StoreError::Gap { number, run });
            }
            Ok((number, value))
        })
    }

    fn key(&self, table: u8, seq: u64) -> Vec<u8> {
        [&prefix(table, self.id)[..], &seq.to_be_bytes()].concat()
    }

    fn meta_key(&self, key: &str) -> Vec<u8> {
        [&prefix(META, self.id)[..], key.as_bytes()].concat()
    }

    fn value(&self, table: &'static str, number: String, why: RecordError) -> StoreError {
        StoreError::Value {
            table,
            number,
            run: self.name.clone(),
            why,
        }
    }
}
