//! Files by digest: frames, models and checkpoints.
//!
//! A blob is durable when the call that made it returns, and is what its name says when a call reads it. Blobs stand
//! in `blobs/`, one file each named by the digest of its bytes; what is being written stands in `side/`, what is
//! being received in `partial/`. Never records: a blob that no record names is garbage.

mod upload;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::disk::{Disk, DiskError};

pub use upload::Upload;

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

/// The folder of blobs; clones share it.
#[derive(Debug, Clone)]
pub struct Blobs {
    dir: PathBuf,
    disk: Disk,
    next_side: Arc<AtomicU64>,
    partial: Arc<Mutex<BTreeMap<ClientId, Arc<Mutex<upload::Partial>>>>>,
}

impl Blobs {
    /// Opens the folders below `dir`, creates them if need be, and clears what was being written.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(dir: &Path, disk: Disk) -> Result<Self, BlobError> {
        for folder in ["blobs", "side", "partial"] {
            disk.create_dir(&dir.join(folder))?;
        }
        let side = dir.join("side");
        for path in files(&side)? {
            disk.remove(&path)?;
        }
        let partial = upload::left_over(&dir.join("partial"), &disk)?;
        let next_side = Arc::new(AtomicU64::new(0));
        Ok(Self {
            dir: dir.to_owned(),
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
        if self.len(&digest)? == Some(bytes.len() as u64) {
            // It may have been renamed by a call that has not synced the folder yet.
            self.disk.sync_dir(&self.dir.join("blobs"))?;
            return Ok(digest);
        }
        let side = self
            .dir
            .join("side")
            .join(self.next_side.fetch_add(1, Ordering::Relaxed).to_string());
        self.disk.replace(&path, &side, bytes)?;
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
        let path = self.path(digest);
        match File::open(&path) {
            Ok(file) => Ok((file, path)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(BlobError::Missing(*digest)),
            Err(e) => Err(DiskError::new("open", &path, &e).into()),
        }
    }

    /// Bytes of a blob; `None` if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub fn len(&self, digest: &Digest) -> Result<Option<u64>, BlobError> {
        let path = self.path(digest);
        match std::fs::metadata(&path) {
            Ok(meta) => Ok(Some(meta.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(DiskError::new("read", &path, &e).into()),
        }
    }

    /// Where a blob stands, or would.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join("blobs").join(digest.to_string())
    }

    /// Removes a blob; one that is not there is no error.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove(&self, digest: &Digest) -> Result<(), BlobError> {
        Ok(self.disk.remove(&self.path(digest))?)
    }

    /// Removes every blob but those in `keep`, and says how many. Only while nothing is being received.
    ///
    /// # Errors
    /// The disk's.
    pub fn sweep(&self, keep: &BTreeSet<Digest>) -> Result<usize, BlobError> {
        let mut removed = 0;
        for path in files(&self.dir.join("blobs"))? {
            let digest = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.parse::<Digest>().ok());
            if digest.is_some_and(|digest| !keep.contains(&digest)) {
                self.disk.remove(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
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
