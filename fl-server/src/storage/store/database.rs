//! Atomic, durable writes to the database and reads from it. No other file names sled.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock::lock;
use crate::storage::disk::{Disk, DiskError};
use crate::storage::store::error::StoreError;
use crate::storage::store::format::{COMMITS_KEY, HEAD_MISSING_KEY, MAJOR, MINOR, VERSION_KEY};
use crate::storage::store::head::Head;

pub(super) type Batch = sled::Batch;
pub(super) type Bytes = sled::IVec;

const CACHE_BYTES: u64 = 4 << 20;

/// The time that `open` waits for another holder of the database to close it.
const OPEN_TIMEOUT: Duration = Duration::from_millis(1_000);
const OPEN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The database of a data folder; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Database {
    db: sled::Db,
    path: PathBuf,
    disk: Disk,
    writing: Arc<Mutex<Writing>>,
}

/// What one write leaves to the next.
#[derive(Debug)]
struct Writing {
    head: Head,
    /// The error of an earlier write.
    failed: Option<String>,
}

impl Database {
    /// Opens the store below `dir`, or creates it. Blocks, for a second at most while another holder has it open.
    ///
    /// # Errors
    /// `Busy`, `Version`, `Broken`, `Lost`, `Head`; the disk's.
    pub(super) fn open(dir: &Path, disk: Disk) -> Result<Self, StoreError> {
        let path = dir.join("store");
        disk.create_dir(&path)?;
        disk.point("open", &path)?;
        let config = sled::Config::new()
            .path(&path)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None);
        let db = open_with_timeout(&config, &path)?;
        let writing = Writing {
            head: Head::open(dir, &disk)?,
            failed: None,
        };
        let database = Self {
            db,
            path,
            disk,
            writing: Arc::new(Mutex::new(writing)),
        };
        let version = database.read(VERSION_KEY)?;
        if let Some(bytes) = version.as_deref().filter(|bytes| **bytes != [MAJOR, MINOR]) {
            let theirs = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(".");
            return Err(StoreError::Version {
                path: database.path,
                theirs,
            });
        }
        if let Some(commits) = database.check_head()? {
            let mut batch = Batch::default();
            batch.insert(HEAD_MISSING_KEY, &commits.to_be_bytes());
            database.write(batch)?;
        }
        if version.is_none() {
            let mut batch = Batch::default();
            batch.insert(VERSION_KEY, &[MAJOR, MINOR]);
            database.write(batch)?;
            database.disk.sync_dir(&database.path)?;
        }
        Ok(database)
    }

    /// Compares the number of the last commit with the head file and writes the higher one there. Returns the number if
    /// the file is missing.
    fn check_head(&self) -> Result<Option<u64>, StoreError> {
        let commits = self.commits(COMMITS_KEY)?.unwrap_or(0);
        let mut missing = None;
        let head = &mut lock(&self.writing).head;
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
                    "{head} is missing, so lost commits would go unnoticed; `fl-server verify` reports this too"
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

    /// The number of commits when the head file was missing, if it ever was.
    pub(super) fn head_was_missing(&self) -> Result<Option<u64>, StoreError> {
        self.commits(HEAD_MISSING_KEY)
    }

    fn commits(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let bytes = self.read(key)?.map(|bytes| <[u8; 8]>::try_from(&bytes[..]));
        let bytes = bytes.transpose();
        let bytes = bytes.map_err(|_| self.broken("a number of commits does not have 8 bytes"))?;
        Ok(bytes.map(u64::from_be_bytes))
    }

    pub(super) fn read(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.db.get(key).map_err(|e| failed(&self.path, &e))
    }

    /// Keys and values whose keys begin with `prefix`, in the order of their keys.
    pub(super) fn scan(&self, prefix: &[u8]) -> impl Iterator<Item = Result<(Bytes, Bytes), StoreError>> + use<> {
        let path = self.path.clone();
        let entries = self.db.scan_prefix(prefix);
        entries.map(move |entry| entry.map_err(|e| failed(&path, &e)))
    }

    /// The last key that begins with `prefix`.
    pub(super) fn last_key(&self, prefix: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let last = self.db.scan_prefix(prefix).next_back().transpose();
        Ok(last.map_err(|e| failed(&self.path, &e))?.map(|(key, _)| key))
    }

    /// Writes all of `batch` or nothing, durable on return.
    ///
    /// # Errors
    /// `Stopped`, `Broken`; the disk's. After an error, every further write returns `Stopped`.
    pub(super) fn write(&self, mut batch: Batch) -> Result<(), StoreError> {
        let mut writing = lock(&self.writing);
        if let Some(why) = &writing.failed {
            return Err(StoreError::Stopped {
                path: self.path.clone(),
                why: why.clone(),
            });
        }
        let commits = writing.head.commits().unwrap_or(0) + 1;
        batch.insert(COMMITS_KEY, &commits.to_be_bytes());
        let written = self
            .disk
            .point("write", &self.path)
            .map_err(StoreError::from)
            .and_then(|()| {
                self.db.apply_batch(batch).map_err(|e| failed(&self.path, &e))?;
                self.disk.point("fsync", &self.path)?;
                self.db.flush().map_err(|e| failed(&self.path, &e))?;
                writing.head.note(commits, &self.disk)?;
                Ok(self.disk.point("reply from", &self.path)?)
            });
        writing.failed = written.as_ref().err().map(ToString::to_string);
        written
    }

    /// The error for a value that no version of this program writes.
    pub(super) fn broken(&self, why: &str) -> StoreError {
        StoreError::Broken {
            path: self.path.clone(),
            why: why.to_owned(),
        }
    }
}

/// Opens the database; waits while a thread of this process or a process that ends still holds it.
fn open_with_timeout(config: &sled::Config, path: &Path) -> Result<sled::Db, StoreError> {
    let mut left = OPEN_TIMEOUT;
    loop {
        match config.open() {
            Ok(db) => return Ok(db),
            Err(sled::Error::Io(error)) if error.to_string().contains("lock") => {
                let Some(rest) = left.checked_sub(OPEN_POLL_INTERVAL) else {
                    return Err(StoreError::Busy(path.to_owned()));
                };
                left = rest;
                std::thread::sleep(OPEN_POLL_INTERVAL);
            }
            Err(error) => return Err(failed(path, &error)),
        }
    }
}

fn failed(path: &Path, error: &sled::Error) -> StoreError {
    match error {
        sled::Error::Io(io) => DiskError::new("write", path, io).into(),
        other => StoreError::Broken {
            path: path.to_owned(),
            why: other.to_string(),
        },
    }
}
