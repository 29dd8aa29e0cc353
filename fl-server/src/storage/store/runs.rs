//! The runs of a data folder.

use std::path::Path;

use fl_proto::RunName;

use crate::storage::disk::{Disk, DiskError};
use crate::storage::store::database::{Batch, Database};
use crate::storage::store::error::StoreError;
use crate::storage::store::format::{NEXT_RUN_KEY, RUN};
use crate::storage::store::run_store::RunStore;

/// The store of a data folder; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) database: Database,
}

impl Store {
    /// Opens the store below `dir`, or creates it. Blocks, for a second at most while another holder has it open.
    ///
    /// # Errors
    /// `Busy`, `Version`, `Broken`, `Lost`, `Head`; the disk's.
    pub fn open(dir: &Path, disk: Disk) -> Result<Self, StoreError> {
        let database = Database::open(dir, disk)?;
        Ok(Self { database })
    }

    /// The number of commits when the head file was missing, if it ever was.
    ///
    /// # Errors
    /// `Broken`.
    pub fn head_was_missing(&self) -> Result<Option<u64>, StoreError> {
        self.database.head_was_missing()
    }

    /// Whether `dir` has a store, or had one.
    ///
    /// # Errors
    /// If that cannot be seen.
    pub fn is_at(dir: &Path) -> Result<bool, DiskError> {
        for path in [dir.join("store"), dir.join("head")] {
            let is_there = path.try_exists();
            if is_there.map_err(|error| DiskError::new("look at", &path, &error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The runs, by name.
    ///
    /// # Errors
    /// `Broken`.
    pub fn runs(&self) -> Result<Vec<RunName>, StoreError> {
        let runs = self.database.scan(&[RUN]).map(|entry| {
            let key = entry?.0;
            let name = key
                .get(1..)
                .and_then(|name| std::str::from_utf8(name).ok()?.parse().ok());
            name.ok_or_else(|| self.database.broken("a run's name is not one"))
        });
        runs.collect()
    }

    /// The run of this name, created if there is none.
    ///
    /// # Errors
    /// `Broken`; the disk's.
    pub fn run(&self, name: &RunName) -> Result<RunStore, StoreError> {
        let key = [&[RUN], name.as_str().as_bytes()].concat();
        let id = match self.database.read(&key)? {
            Some(bytes) => self.run_number(&bytes)?,
            None => {
                let id = self.next_run()?;
                let mut batch = Batch::default();
                batch.insert(key, &id.to_be_bytes());
                batch.insert(NEXT_RUN_KEY, &id.saturating_add(1).to_be_bytes());
                self.database.write(batch)?;
                id
            }
        };
        RunStore::open(self.database.clone(), name.clone(), id)
    }

    /// A number that no run has had: a run with a number of before would inherit the records stored under it.
    fn next_run(&self) -> Result<u32, StoreError> {
        let next = match self.database.read(NEXT_RUN_KEY)? {
            Some(bytes) => self.run_number(&bytes)?,
            None => 0,
        };
        if next == u32::MAX {
            return Err(self.database.broken("no number is left for another run"));
        }
        Ok(next)
    }

    fn run_number(&self, bytes: &[u8]) -> Result<u32, StoreError> {
        let bytes = <[u8; 4]>::try_from(bytes);
        let bytes = bytes.map_err(|_| self.database.broken("a run's number does not have 4 bytes"))?;
        Ok(u32::from_be_bytes(bytes))
    }
}
