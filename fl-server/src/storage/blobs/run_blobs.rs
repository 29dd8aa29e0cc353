//! Files by digest: frames, models and checkpoints.
//!
//! A blob is durable when the call that made it returns, and is what its name says when a call reads it. Blobs are
//! files in `blobs/RUN/`, named by the digest of their bytes: what one run removes, no other run can miss. Files being
//! written are in `side/`, as are whole uploads until the driver has decided on them; uploads in progress are in
//! `partial/RUN/`. A blob that no record of its run names is garbage.
//!
//! Programs before store format 1.1 kept the blobs of all runs in `blobs/` itself. These are read where the run's own
//! folder has none, and removed only once no run names them.

mod upload;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fl_compress::Digest;
use fl_proto::{ClientId, RunName};

use crate::storage::disk::{Disk, DiskError};

pub use upload::{Received, Upload};

/// A blob cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The disk's.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There is no such blob.
    #[error("blob {0} is missing")]
    Missing(Digest),
    /// The file has other bytes than its name says.
    #[error("{} is damaged: its digest is {found}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Digest of what it holds.
        found: Digest,
    },
    /// An upload is longer than declared.
    #[error("an upload of {len} bytes was declared to have {max}")]
    TooLarge {
        /// Bytes received.
        len: u64,
        /// Bytes declared.
        max: u64,
    },
    /// An upload was finished before all its bytes came.
    #[error("an upload has {have} of {len} bytes")]
    Short {
        /// Bytes received.
        have: u64,
        /// Bytes declared.
        len: u64,
    },
    /// Another call goes on with this client's upload.
    #[error("the upload goes on in another call")]
    Superseded,
}

/// The blobs of one run; clones share them.
#[derive(Debug, Clone)]
pub struct Blobs {
    dir: PathBuf,
    run: RunName,
    /// Of the run's blobs.
    folder: PathBuf,
    disk: Disk,
    next_side: Arc<AtomicU64>,
    partial: Arc<Mutex<BTreeMap<ClientId, Arc<Mutex<upload::Partial>>>>>,
}

impl Blobs {
    /// Opens the folders of `run` below `dir`, creates them if need be, and clears what was being written.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(dir: &Path, run: &RunName, disk: Disk) -> Result<Self, BlobError> {
        let folder = dir.join(BLOBS).join(run.as_str());
        let partial = dir.join("partial").join(run.as_str());
        for folder in [
            &dir.join(BLOBS),
            &folder,
            &dir.join("side"),
            &dir.join("partial"),
            &partial,
        ] {
            disk.create_dir(folder)?;
        }
        // Before format 1.1, uploads in progress were files in `partial/` itself.
        for path in files(&dir.join("side"))?
            .into_iter()
            .chain(files(&dir.join("partial"))?)
        {
            disk.remove(&path)?;
        }
        let partial = upload::left_over(&partial, &disk)?;
        let next_side = Arc::new(AtomicU64::new(0));
        Ok(Self {
            folder,
            dir: dir.to_owned(),
            run: run.clone(),
            disk,
            next_side,
            partial: Arc::new(Mutex::new(partial)),
        })
    }

    /// Keeps `bytes`; durable when it returns.
    ///
    /// # Errors
    /// The disk's.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, BlobError> {
        let digest = Digest::of(bytes);
        let path = self.path(&digest);
        if len(&path)? == Some(bytes.len() as u64) {
            // It may have been renamed by a call that has not synced the folder yet.
            self.disk.sync_dir(&self.folder)?;
            return Ok(digest);
        }
        self.disk.replace(&path, &self.side(), bytes)?;
        Ok(digest)
    }

    /// The bytes of a blob, their digest checked.
    ///
    /// # Errors
    /// `Missing`, `Damaged`; the disk's.
    pub fn get(&self, digest: &Digest) -> Result<Vec<u8>, BlobError> {
        let mut bytes = Vec::new();
        self.read(digest, &mut bytes).map(|()| bytes)
    }

    /// Replaces `bytes` by those of a blob, their digest checked: as [`Blobs::get`], for reading many.
    ///
    /// # Errors
    /// `Missing`, `Damaged`; the disk's. What is in `bytes` then is of no use.
    pub fn read(&self, digest: &Digest, bytes: &mut Vec<u8>) -> Result<(), BlobError> {
        let (mut file, path) = self.file(digest)?;
        bytes.clear();
        file.read_to_end(bytes).map_err(|e| DiskError::new("read", &path, &e))?;
        let found = Digest::of(bytes);
        if found == *digest {
            Ok(())
        } else {
            Err(BlobError::Damaged { path, found })
        }
    }

    /// The file of a blob, for sending it piece by piece; its digest is not checked (the receiver does).
    ///
    /// # Errors
    /// `Missing`; the disk's.
    pub fn file(&self, digest: &Digest) -> Result<(File, PathBuf), BlobError> {
        let path = find(&self.dir, &self.run, digest);
        let file = self.disk.read(&path)?.ok_or(BlobError::Missing(*digest))?;
        Ok((file, path))
    }

    /// The same blobs for calls, which their clients try again: see [`Disk::patient`].
    pub(crate) fn impatient(self) -> Self {
        Self {
            disk: self.disk.patient(false),
            ..self
        }
    }

    /// Bytes of a blob; `None` if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub fn len(&self, digest: &Digest) -> Result<Option<u64>, BlobError> {
        Ok(len(&find(&self.dir, &self.run, digest))?)
    }

    /// A file that nobody else writes.
    fn side(&self) -> PathBuf {
        let number = self.next_side.fetch_add(1, Ordering::Relaxed);
        self.dir.join("side").join(number.to_string())
    }

    /// Where a blob of the run is written.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    /// Removes a blob; one that is not there is no error.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove(&self, digest: &Digest) -> Result<(), BlobError> {
        Ok(self.disk.remove(&self.path(digest))?)
    }

    /// Removes every blob of the run but those in `keep`, and says how many. Only while nothing is being received.
    ///
    /// # Errors
    /// The disk's.
    pub fn sweep(&self, keep: &BTreeSet<Digest>) -> Result<usize, BlobError> {
        Ok(sweep(&self.folder, keep, &self.disk)?)
    }

    /// Whether there are blobs of programs before format 1.1.
    ///
    /// # Errors
    /// The disk's.
    pub fn has_shared(&self) -> Result<bool, BlobError> {
        Ok(!files(&self.dir.join(BLOBS))?.is_empty())
    }

    /// As [`Blobs::sweep`], of those. `keep`: what all runs of the store name.
    ///
    /// # Errors
    /// The disk's.
    pub fn sweep_shared(&self, keep: &BTreeSet<Digest>) -> Result<usize, BlobError> {
        Ok(sweep(&self.dir.join(BLOBS), keep, &self.disk)?)
    }
}

/// The folder of all runs' blobs.
const BLOBS: &str = "blobs";

/// The file of a blob of `run` below the data folder `dir`; where it would be, if there is none.
pub(crate) fn find(dir: &Path, run: &RunName, digest: &Digest) -> PathBuf {
    let name = digest.to_string();
    let (own, shared) = (
        dir.join(BLOBS).join(run.as_str()).join(&name),
        dir.join(BLOBS).join(name),
    );
    if !own.exists() && shared.exists() { shared } else { own }
}

/// Bytes of a file; `None` if there is none.
fn len(path: &Path) -> Result<Option<u64>, DiskError> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(meta.len())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(DiskError::new("read", path, &e)),
    }
}

/// Removes the files of a folder that are named by a digest which is not in `keep`, and says how many.
fn sweep(folder: &Path, keep: &BTreeSet<Digest>, disk: &Disk) -> Result<usize, DiskError> {
    let mut removed = 0;
    for path in files(folder)? {
        let digest = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.parse::<Digest>().ok());
        if digest.is_some_and(|digest| !keep.contains(&digest)) {
            disk.remove(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, DiskError> {
    let entries = std::fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let entries = entries.map_err(|e| DiskError::new("read", folder, &e))?;
    let mut paths: Vec<_> = entries
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    Ok(paths)
}
