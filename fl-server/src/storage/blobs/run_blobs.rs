//! The blobs of one run.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fl_compress::Digest;
use fl_proto::RunName;

use crate::storage::blobs::error::BlobError;
use crate::storage::blobs::packs::{Index, Packs};
use crate::storage::blobs::partial::{self, Partials};
use crate::storage::disk::{Disk, DiskError, files};

/// The blobs of one run; clones share them.
#[derive(Debug, Clone)]
pub struct Blobs {
    pub(super) dir: PathBuf,
    pub(super) run: RunName,
    /// Folder of the run's blobs.
    pub(super) folder: PathBuf,
    pub(super) disk: Disk,
    next_side: Arc<AtomicU64>,
    pub(super) partials: Partials,
    pub(super) packs: Arc<Packs>,
}

impl Blobs {
    /// Opens or creates the folders of `run` below `dir` and removes the files that were being written.
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
        for path in files(&dir.join("side"))? {
            disk.remove(&path)?;
        }
        let partials = partial::left_over(&partial, &disk)?;
        let next_side = Arc::new(AtomicU64::new(0));
        let packs = Packs::open(&packs_folder(dir, run), disk.clone())?;
        Ok(Self {
            packs: Arc::new(packs),
            folder,
            dir: dir.to_owned(),
            run: run.clone(),
            disk,
            next_side,
            partials,
        })
    }

    /// Stores `bytes`; durable on return.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, BlobError> {
        let digest = Digest::of(bytes);
        let path = self.own_path(&digest);
        if len(&path)? == Some(bytes.len() as u64) {
            // Another call may have renamed the file and not synced the folder yet.
            self.disk.sync_dir(&self.folder)?;
            return Ok(digest);
        }
        self.disk.replace(&path, &self.side(), bytes)?;
        Ok(digest)
    }

    /// The bytes of a blob, their digest checked.
    ///
    /// # Errors
    /// `Missing`, `Damaged`; `Disk`.
    pub fn get(&self, digest: &Digest) -> Result<Vec<u8>, BlobError> {
        let mut bytes = Vec::new();
        self.read(digest, &mut bytes).map(|()| bytes)
    }

    /// As [`Blobs::get`], into a buffer that callers reuse.
    ///
    /// # Errors
    /// `Missing`, `Damaged`; `Disk`. `bytes` is then unspecified.
    pub fn read(&self, digest: &Digest, bytes: &mut Vec<u8>) -> Result<(), BlobError> {
        let packed = self.packs.locate(digest);
        let path = match packed {
            Some(packed) => {
                packed.read(bytes)?;
                packed.path().to_owned()
            }
            None => {
                let (mut file, path) = self.file(digest)?;
                bytes.clear();
                file.read_to_end(bytes).map_err(|e| DiskError::new("read", &path, &e))?;
                path
            }
        };
        let found = Digest::of(bytes);
        if found == *digest {
            Ok(())
        } else {
            Err(BlobError::Damaged { path, found })
        }
    }

    /// The file of a blob that was [`put`](Blobs::put), to send it in pieces. The receiver checks its digest.
    ///
    /// # Errors
    /// `Missing`; `Disk`.
    pub fn file(&self, digest: &Digest) -> Result<(File, PathBuf), BlobError> {
        let path = self.own_path(digest);
        let file = self.disk.read(&path)?.ok_or(BlobError::Missing(*digest))?;
        Ok((file, path))
    }

    /// The same blobs for RPCs, which clients retry: see [`Disk::patient`].
    pub(crate) fn impatient(self) -> Self {
        Self {
            disk: self.disk.patient(false),
            ..self
        }
    }

    /// Bytes of a blob; `None` if there is none.
    pub fn len(&self, digest: &Digest) -> Result<Option<u64>, BlobError> {
        match self.packs.locate(digest) {
            Some(packed) => Ok(Some(packed.len())),
            None => Ok(len(&self.own_path(digest))?),
        }
    }

    /// A file name that no other call uses.
    pub(super) fn side(&self) -> PathBuf {
        let number = self.next_side.fetch_add(1, Ordering::Relaxed);
        self.dir.join("side").join(number.to_string())
    }

    /// The file that a blob of the run is in, or would be written to.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        let packed = self.packs.locate(digest).map(|packed| packed.path().to_owned());
        packed.unwrap_or_else(|| self.own_path(digest))
    }

    /// The file of a blob that has its own.
    pub(super) fn own_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    pub fn remove(&self, digest: &Digest) -> Result<(), BlobError> {
        if self.packs.remove(digest)? {
            return Ok(());
        }
        Ok(self.disk.remove(&self.own_path(digest))?)
    }

    /// Removes every blob of the run that is not in `keep`; returns how many. Not to be called during an upload.
    pub fn sweep(&self, keep: &BTreeSet<Digest>) -> Result<usize, BlobError> {
        Ok(self.packs.sweep(keep)? + sweep(&self.folder, keep, &self.disk)?)
    }
}

const BLOBS: &str = "blobs";

/// The folder of the packs of `run` below the data folder `dir`.
fn packs_folder(dir: &Path, run: &RunName) -> PathBuf {
    dir.join("packs").join(run.as_str())
}

/// The packs of `run` below the data folder `dir`, of another process perhaps.
pub(crate) fn packs_of(dir: &Path, run: &RunName) -> Result<Index, DiskError> {
    Index::open(&packs_folder(dir, run))
}

/// Path of a blob of `run` below the data folder `dir`, whether or not it exists.
pub(crate) fn find(dir: &Path, run: &RunName, digest: &Digest) -> PathBuf {
    dir.join(BLOBS).join(run.as_str()).join(digest.to_string())
}

/// Bytes of a file; `None` if there is none.
fn len(path: &Path) -> Result<Option<u64>, DiskError> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(meta.len())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(DiskError::new("read", path, &e)),
    }
}

/// Removes the files of a folder that are named by a digest not in `keep`; returns how many.
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
