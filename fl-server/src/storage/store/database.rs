//! The records, ledger rows and small tables of the runs: the only file that knows the database.
//!
//! What a call has written is durable when it returns. Values are small; bytes of models are blobs. Keys are a letter
//! for the table, the run's number and a sequence number, big-endian so that their order is the order of writing.
//! Every value but the version carries its own version byte and CRC-32C.

mod error;
mod head;
mod seal;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fl_compress::Digest;
use fl_proto::RunName;

use crate::accounting::ledger::Row;
use crate::storage::disk::{Disk, DiskError};
use crate::storage::record::{Record, RecordError};

use head::Head;
use seal::{seal, unseal};

pub use error::StoreError;

/// Version of the tables; a newer one is refused. Minor version 1: blobs are kept by run.
const MAJOR: u8 = 1;
const MINOR: u8 = 1;

/// Memory that the database may use for what it has read.
const CACHE: u64 = 4 << 20;

/// How long a store that is open elsewhere is waited for, and how long between two tries.
const PATIENCE: Duration = Duration::from_millis(1_000);
const PAUSE: Duration = Duration::from_millis(10);

const VERSION_KEY: &[u8] = b"v";
/// The number of the last commit.
const COMMITS_KEY: &[u8] = b"c";
/// Commits that the store had when its head file was missing.
const HEAD_MISSING_KEY: &[u8] = b"h";
/// The number of the next run.
const NEXT_RUN_KEY: &[u8] = b"i";
const RUN: u8 = b'n';
const RECORD: u8 = b'r';
const ROW: u8 = b'l';
const META: u8 = b'm';
const TAIL: u8 = b't';

/// The store of a data folder; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    db: sled::Db,
    path: PathBuf,
    disk: Disk,
    writing: Arc<Mutex<Writing>>,
}

/// What one write leaves to the next.
#[derive(Debug)]
struct Writing {
    head: Head,
    /// Whether the next commit has to say that this program has written to the store.
    is_older: bool,
    /// Why an earlier write failed, if one has.
    failed: Option<String>,
}

impl Store {
    /// Opens the store below `dir`, creating it if need be. Blocks, for a second at most if it is open elsewhere.
    ///
    /// # Errors
    /// `Busy`, `Newer`, `Broken`, `Lost`, `Head`; the disk's.
    pub fn open(dir: &Path, disk: Disk) -> Result<Self, StoreError> {
        let path = dir.join("store");
        disk.create_dir(&path)?;
        disk.point("open", &path)?;
        let config = sled::Config::new()
            .path(&path)
            .cache_capacity(CACHE)
            .flush_every_ms(None);
        let db = open_patiently(&config, &path)?;
        let writing = Writing {
            head: Head::open(dir, &disk)?,
            is_older: false,
            failed: None,
        };
        let store = Self {
            db,
            path,
            disk,
            writing: Arc::new(Mutex::new(writing)),
        };
        let version = store.read(VERSION_KEY)?;
        let is_known = |bytes: &[u8]| matches!(bytes, [MAJOR, minor] if *minor <= MINOR);
        if let Some(bytes) = version.as_deref().filter(|bytes| !is_known(bytes)) {
            let theirs = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(".");
            return Err(StoreError::Newer {
                path: store.path,
                theirs,
            });
        }
        store.writing().is_older = version.as_deref() != Some(&[MAJOR, MINOR]);
        if let Some(commits) = store.check_head()? {
            let mut batch = sled::Batch::default();
            batch.insert(HEAD_MISSING_KEY, &commits.to_be_bytes());
            store.write(batch)?;
        }
        if version.is_none() {
            store.write(sled::Batch::default())?;
            store.disk.sync_dir(&store.path)?;
        }
        Ok(store)
    }

    /// Compares the number of the last commit with what the head file says, and takes over the higher. Returns the number
    /// if the file is missing.
    fn check_head(&self) -> Result<Option<u64>, StoreError> {
        let commits = self.commits(COMMITS_KEY)?.unwrap_or(0);
        let mut missing = None;
        let head = &mut self.writing().head;
        match head.commits() {
            Some(acknowledged) if commits < acknowledged => {
                return Err(StoreError::Lost {
                    path: self.path.clone(),
                    commits,
                    acknowledged,
                    head: head.path().to_owned(),
                });
            }
            // After the first commit, the file may still be empty.
            None if commits > 1 && !head.is_new() => return Err(StoreError::Head(head.path().to_owned())),
            None if commits > 1 => {
                let head = head.path().display();
                tracing::warn!(
                    commits,
                    "{head} is missing: whether the store has lost commits is not known; `fl-server verify` will say so"
                );
                missing = Some(commits);
            }
            _ => {}
        }
        if head.commits() != Some(commits) {
            head.note(commits, &self.disk)?;
        }
        Ok(missing)
    }

    /// The commits that the store had when its head file was missing, if it ever was.
    ///
    /// # Errors
    /// `Broken`.
    pub fn head_was_missing(&self) -> Result<Option<u64>, StoreError> {
        self.commits(HEAD_MISSING_KEY)
    }

    /// A number of commits.
    fn commits(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let bytes = self.read(key)?.map(|bytes| <[u8; 8]>::try_from(&bytes[..]));
        let bytes = bytes.transpose();
        let bytes = bytes.map_err(|_| self.strange("a number of commits is strange"))?;
        Ok(bytes.map(u64::from_be_bytes))
    }

    /// Whether `dir` has a store, or had one.
    pub fn is_at(dir: &Path) -> bool {
        dir.join("store").exists() || dir.join("head").exists()
    }

    /// The runs, by name.
    ///
    /// # Errors
    /// `Broken`.
    pub fn runs(&self) -> Result<Vec<RunName>, StoreError> {
        let mut runs = Vec::new();
        for entry in self.db.scan_prefix([RUN]) {
            let (key, _) = entry.map_err(|e| broken(&self.path, &e))?;
            let name = key
                .get(1..)
                .and_then(|name| std::str::from_utf8(name).ok())
                .and_then(|name| name.parse().ok());
            runs.push(name.ok_or_else(|| self.strange("a run has a strange name"))?);
        }
        Ok(runs)
    }

    /// One run, created if there is none of this name.
    ///
    /// # Errors
    /// `Broken`; the disk's.
    pub fn run(&self, name: &RunName) -> Result<RunStore, StoreError> {
        let key = [&[RUN], name.as_str().as_bytes()].concat();
        let id = match self.read(&key)? {
            Some(bytes) => self.run_number(&bytes)?,
            None => {
                let id = self.next_run()?;
                let mut batch = sled::Batch::default();
                batch.insert(key, &id.to_be_bytes());
                batch.insert(NEXT_RUN_KEY, &id.saturating_add(1).to_be_bytes());
                self.write(batch)?;
                id
            }
        };
        let next = |table| -> Result<Arc<AtomicU64>, StoreError> {
            let last = self.db.scan_prefix(prefix(table, id)).next_back().transpose();
            let last = last.map_err(|e| broken(&self.path, &e))?.map(|(key, _)| key);
            let next = last.map_or(0, |key| sequence(&key).map_or(u64::MAX, |n| n.saturating_add(1)));
            Ok(Arc::new(AtomicU64::new(next)))
        };
        let (records, rows) = (next(RECORD)?, next(ROW)?);
        Ok(RunStore {
            store: self.clone(),
            name: name.clone(),
            id,
            records,
            rows,
        })
    }

    /// A number that no run has had: another run under it would take its records for its own. Stores of format 1.0
    /// do not say which was the last, so what is there is asked too.
    fn next_run(&self) -> Result<u32, StoreError> {
        let mut next = match self.read(NEXT_RUN_KEY)? {
            Some(bytes) => self.run_number(&bytes)?,
            None => 0,
        };
        for entry in self.db.scan_prefix([RUN]) {
            let (_, bytes) = entry.map_err(|e| broken(&self.path, &e))?;
            next = next.max(self.run_number(&bytes)?.saturating_add(1));
        }
        for table in [RECORD, ROW, META] {
            let last = self.db.scan_prefix([table]).next_back().transpose();
            let last = last.map_err(|e| broken(&self.path, &e))?;
            let number = last.and_then(|(key, _)| Some(u32::from_be_bytes(*key.get(1..)?.first_chunk()?)));
            next = next.max(number.map_or(0, |number| number.saturating_add(1)));
        }
        if next == u32::MAX {
            return Err(self.strange("it has no number left for another run"));
        }
        Ok(next)
    }

    fn run_number(&self, bytes: &[u8]) -> Result<u32, StoreError> {
        let bytes = <[u8; 4]>::try_from(bytes).map_err(|_| self.strange("a run has a strange number"))?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn read(&self, key: &[u8]) -> Result<Option<sled::IVec>, StoreError> {
        self.db.get(key).map_err(|e| broken(&self.path, &e))
    }

    /// Writes all or nothing, durable on return.
    fn write(&self, mut batch: sled::Batch) -> Result<(), StoreError> {
        let mut writing = self.writing();
        if let Some(why) = &writing.failed {
            return Err(StoreError::Stopped {
                path: self.path.clone(),
                why: why.clone(),
            });
        }
        let commits = writing.head.commits().unwrap_or(0) + 1;
        batch.insert(COMMITS_KEY, &commits.to_be_bytes());
        if writing.is_older {
            batch.insert(VERSION_KEY, &[MAJOR, MINOR]);
        }
        let written = self
            .disk
            .point("write", &self.path)
            .map_err(StoreError::from)
            .and_then(|()| {
                self.db.apply_batch(batch).map_err(|e| broken(&self.path, &e))?;
                self.disk.point("fsync", &self.path)?;
                self.db.flush().map_err(|e| broken(&self.path, &e))?;
                writing.head.note(commits, &self.disk)?;
                Ok(self.disk.point("reply from", &self.path)?)
            });
        writing.failed = written.as_ref().err().map(ToString::to_string);
        writing.is_older &= written.is_err();
        written
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strange(&self, why: &str) -> StoreError {
        StoreError::Broken {
            path: self.path.clone(),
            why: why.to_owned(),
        }
    }
}

/// A checkpoint of the global model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Model version.
    pub version: u64,
    /// Digest of its blob.
    pub blob: Digest,
}

/// The named values of a run's checkpoints, newest first. If the newest is damaged, the older one and the updates since
/// then make the same model.
pub const CHECKPOINTS: [&str; 2] = ["checkpoint", "checkpoint-before"];

/// One run in the store; clones share it. Written by one caller at a time.
#[derive(Debug, Clone)]
pub struct RunStore {
    store: Store,
    name: RunName,
    id: u32,
    records: Arc<AtomicU64>,
    rows: Arc<AtomicU64>,
}

impl RunStore {
    /// The run.
    pub fn name(&self) -> &RunName {
        &self.name
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of ledger rows.
    pub fn rows_len(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Appends records and ledger rows, all or none, with one flush; durable when it returns. Rows take the place of the
    /// [tail](RunStore::tail), whose bytes they must contain. Blocks.
    ///
    /// # Errors
    /// `Stopped`, `Broken`; the disk's. After one of them every further write is refused with `Stopped`.
    pub fn append(&self, records: &[Record], rows: &[Vec<u8>]) -> Result<(), StoreError> {
        if records.is_empty() && rows.is_empty() {
            return Ok(());
        }
        let mut batch = sled::Batch::default();
        let (first, first_row) = (self.records.load(Ordering::Relaxed), self.rows.load(Ordering::Relaxed));
        for (seq, record) in (first..).zip(records) {
            batch.insert(self.key(RECORD, seq), record.to_bytes());
        }
        for (seq, row) in (first_row..).zip(rows) {
            batch.insert(self.key(ROW, seq), seal(row));
        }
        if !rows.is_empty() {
            batch.remove(&prefix(TAIL, self.id));
        }
        self.store.write(batch)?;
        self.records.store(first + records.len() as u64, Ordering::Relaxed);
        self.rows.store(first_row + rows.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The records, in the order in which they were appended.
    ///
    /// # Errors
    /// Each item: `Value` with number and byte, `Gap`, `Broken`.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, StoreError>> {
        let run = self.clone();
        self.values(RECORD).map(move |value| {
            let (number, value) = value?;
            Record::from_bytes(&value).map_err(|why| run.value("record", number.to_string(), why))
        })
    }

    /// The ledger rows, in the order in which they were appended.
    ///
    /// # Errors
    /// As [`RunStore::records`].
    pub fn rows(&self) -> impl Iterator<Item = Result<Vec<u8>, StoreError>> {
        let run = self.clone();
        self.values(ROW).map(move |value| {
            let (number, value) = value?;
            unseal(&value).map_err(|why| run.value("ledger row", number.to_string(), why))
        })
    }

    /// The tail of the ledger: rows of what has passed since the last row was appended. A later tail replaces it.
    ///
    /// # Errors
    /// `Value`, `Broken`.
    pub fn tail(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let Some(value) = self.store.read(&prefix(TAIL, self.id))? else {
            return Ok(Vec::new());
        };
        let why = |why| self.value("ledger row", "the tail".to_owned(), why);
        let bytes = unseal(&value).map_err(why)?;
        let (mut rest, mut rows) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let row = rest.split_first_chunk::<4>().and_then(|(len, rest)| {
                let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
                rest.split_at_checked(len)
            });
            let offset = bytes.len() - rest.len();
            let (row, left) = row.ok_or_else(|| why(RecordError::Truncated { what: "row", offset }))?;
            rows.push(row.to_vec());
            rest = left;
        }
        Ok(rows)
    }

    /// Replaces the tail of the ledger; durable when it returns. Blocks.
    ///
    /// # Errors
    /// As [`RunStore::append`].
    pub fn set_tail(&self, rows: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for row in rows {
            bytes.extend_from_slice(&(row.len() as u32).to_le_bytes());
            bytes.extend_from_slice(row);
        }
        let mut batch = sled::Batch::default();
        batch.insert(&prefix(TAIL, self.id), seal(&bytes));
        self.store.write(batch)
    }

    /// A ledger row as it was stored under this number.
    ///
    /// # Errors
    /// `Value` if the bytes are not a row of a version known.
    pub(crate) fn row(&self, number: u64, bytes: &[u8]) -> Result<Row, StoreError> {
        let why = match bytes.first() {
            Some(&theirs) if theirs > Row::VERSION => RecordError::Newer {
                theirs,
                ours: Row::VERSION,
            },
            _ => RecordError::Corrupt {
                what: "ledger row",
                offset: 0,
            },
        };
        Row::from_bytes(bytes).ok_or_else(|| self.value("ledger row", number.to_string(), why))
    }

    /// A small named value: the plan's text, the layout, the last checkpoint.
    ///
    /// # Errors
    /// `Value`, `Broken`.
    pub fn meta(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.store.read(&self.meta_key(key))?;
        let value = value.map(|value| unseal(&value)).transpose();
        value.map_err(|why| self.value("entry", key.to_owned(), why))
    }

    /// Sets a small named value; durable when it returns. Blocks.
    ///
    /// # Errors
    /// As [`RunStore::append`].
    pub fn set_meta(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.set_metas(&[(key, value)], &[])
    }

    /// Sets and removes named values, all or none.
    fn set_metas(&self, set: &[(&str, &[u8])], remove: &[&str]) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        for (key, value) in set {
            batch.insert(self.meta_key(key), seal(value));
        }
        for key in remove {
            batch.remove(self.meta_key(key));
        }
        self.store.write(batch)
    }

    /// The checkpoints of the global model that are kept, newest first.
    ///
    /// # Errors
    /// `Value`, `Broken`.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        let mut all = Vec::new();
        for key in CHECKPOINTS {
            let Some(value) = self.meta(key)? else { break };
            let parts = value
                .split_first_chunk::<8>()
                .and_then(|(version, rest)| Some((version, rest.try_into().ok()?)));
            let why = RecordError::Truncated {
                what: "checkpoint",
                offset: value.len(),
            };
            let (version, digest) = parts.ok_or_else(|| self.value("entry", key.to_owned(), why))?;
            all.push(Checkpoint {
                version: u64::from_le_bytes(*version),
                blob: Digest(digest),
            });
        }
        Ok(all)
    }

    /// Names the checkpoints that are kept from now on, newest first, [`CHECKPOINTS`] at most; their blobs are durable
    /// already. `also`: named values that are set with them, all or none. Durable when it returns. Blocks.
    ///
    /// # Errors
    /// As [`RunStore::append`].
    pub fn set_checkpoints(&self, kept: &[Checkpoint], also: &[(&str, &[u8])]) -> Result<(), StoreError> {
        let values = kept
            .iter()
            .map(|kept| [&kept.version.to_le_bytes()[..], &kept.blob.0].concat());
        let values: Vec<Vec<u8>> = values.collect();
        let named = CHECKPOINTS.into_iter().zip(values.iter().map(Vec::as_slice));
        let set: Vec<_> = named.chain(also.iter().copied()).collect();
        self.set_metas(&set, CHECKPOINTS.get(kept.len()..).unwrap_or_default())
    }

    /// The values of a table with their numbers, which must be 0, 1, 2, ..
    fn values(&self, table: u8) -> impl Iterator<Item = Result<(u64, sled::IVec), StoreError>> + use<> {
        let run = self.clone();
        self.store
            .db
            .scan_prefix(prefix(table, self.id))
            .zip(0..)
            .map(move |(entry, number)| {
                let (key, value) = entry.map_err(|e| broken(&run.store.path, &e))?;
                if sequence(&key) != Some(number) {
                    return Err(StoreError::Gap {
                        number,
                        run: run.name.clone(),
                    });
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

/// Opens the database; one that is just being let go of, by a thread of this process or a process that is ending, is
/// waited for.
fn open_patiently(config: &sled::Config, path: &Path) -> Result<sled::Db, StoreError> {
    let mut left = PATIENCE;
    loop {
        match config.open() {
            Ok(db) => return Ok(db),
            Err(sled::Error::Io(error)) if error.to_string().contains("lock") => {
                let Some(rest) = left.checked_sub(PAUSE) else {
                    return Err(StoreError::Busy(path.to_owned()));
                };
                left = rest;
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(broken(path, &error)),
        }
    }
}

fn prefix(table: u8, run: u32) -> [u8; 5] {
    let [a, b, c, d] = run.to_be_bytes();
    [table, a, b, c, d]
}

fn sequence(key: &[u8]) -> Option<u64> {
    key.get(5..)?.try_into().ok().map(u64::from_be_bytes)
}

fn broken(path: &Path, error: &sled::Error) -> StoreError {
    match error {
        sled::Error::Io(io) => DiskError::new("write", path, io).into(),
        other => StoreError::Broken {
            path: path.to_owned(),
            why: other.to_string(),
        },
    }
}
