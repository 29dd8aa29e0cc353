//! Every write of the process to its data folder passes here, so that a test can make any of them the last.
//!
//! A *persistence point* is a step after which the disk differs: a write, an fsync, a rename, an fsync of a folder, a
//! removal, a commit of the store. An injected fault strikes at the n-th. Nothing else in this crate writes files
//! below the data folder.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The disk could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action} {}: {why}{}", path.display(), hint(*kind))]
pub struct DiskError {
    /// What was asked: `write`, `fsync`, ..
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the operating system said.
    pub why: String,
    /// The kind of its answer.
    pub kind: ErrorKind,
}

impl DiskError {
    pub(crate) fn new(action: &'static str, path: &Path, error: &io::Error) -> Self {
        Self {
            action,
            path: path.to_owned(),
            why: error.to_string(),
            kind: error.kind(),
        }
    }

    /// Whether room is what is missing.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }
}

fn hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free some space there and start again: nothing is lost",
        ErrorKind::PermissionDenied => "; check who owns it",
        _ => "",
    }
}

/// Opens a file for reading.
///
/// # Errors
/// The system's; `InvalidInput` for a folder, pipe or device, which could keep the reader waiting for ever.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true), path)
}

fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Changes nothing for files; opening a pipe would wait for its other end.
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file"))
}

/// What an injected fault does when its point is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Ends the process at once, as SIGKILL would; a write is left half done.
    Abort,
    /// The disk is full from then on; the write that meets it is left half done.
    Full,
}

/// A fault that strikes at one persistence point, counted from 1. As text: `abort@17`, `full@17`.
#[derive(Debug)]
pub struct Fault {
    kind: FaultKind,
    at: u64,
    seen: AtomicU64,
}

impl Fault {
    /// A fault at the `at`-th point; one at `u64::MAX` only counts.
    pub fn new(kind: FaultKind, at: u64) -> Self {
        Self {
            kind,
            at,
            seen: AtomicU64::new(0),
        }
    }

    /// Points passed so far.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("a fault is `abort@N` or `full@N` with N from 1, not `{text}`");
        let (kind, at) = text.split_once('@').ok_or_else(bad)?;
        let at = at.parse().ok().filter(|&at| at > 0).ok_or_else(bad)?;
        match kind {
            "abort" => Ok(Self::new(FaultKind::Abort, at)),
            "full" => Ok(Self::new(FaultKind::Full, at)),
            _ => Err(bad()),
        }
    }
}

/// The way to the disk; clones share the fault and its count.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    fault: Option<Arc<Fault>>,
}

impl Disk {
    /// A disk on which `fault` will strike, if one is given.
    pub fn new(fault: Option<Arc<Fault>>) -> Self {
        Self { fault }
    }

    /// Passes one persistence point that is about to do `action` at `path`.
    ///
    /// # Errors
    /// The injected one.
    pub fn point(&self, action: &'static str, path: &Path) -> Result<(), DiskError> {
        match self.struck() {
            None => Ok(()),
            Some(FaultKind::Abort) => std::process::abort(),
            Some(FaultKind::Full) => Err(DiskError::new(action, path, &ErrorKind::StorageFull.into())),
        }
    }

    /// Creates the folder and those above it.
    ///
    /// # Errors
    /// The disk's.
    pub fn create_dir(&self, path: &Path) -> Result<(), DiskError> {
        if path.is_dir() {
            return Ok(());
        }
        self.point("create", path)?;
        std::fs::create_dir_all(path).map_err(|e| DiskError::new("create", path, &e))?;
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    /// Opens a file for reading and writing, at its beginning; creates it if need be and empties it if asked to.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(&self, path: &Path, empty: bool) -> Result<File, DiskError> {
        self.point("create", path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(empty);
        regular(&mut options, path).map_err(|e| DiskError::new("create", path, &e))
    }

    /// Writes `bytes` where `file` stands; `path` is its name, for the error.
    ///
    /// # Errors
    /// The disk's; an unknown part is written then.
    pub fn write(&self, mut file: &File, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let written = match self.struck() {
            None => file.write_all(bytes),
            Some(kind) => {
                let half = file.write_all(&bytes[..bytes.len() / 2]);
                if kind == FaultKind::Abort {
                    std::process::abort();
                }
                half.and(Err(ErrorKind::StorageFull.into()))
            }
        };
        written.map_err(|e| DiskError::new("write", path, &e))
    }

    /// Makes the content of `file` durable.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self, file: &File, path: &Path) -> Result<(), DiskError> {
        self.point("fsync", path)?;
        file.sync_all().map_err(|e| DiskError::new("fsync", path, &e))
    }

    /// Renames a file within one folder tree, replacing what stood there.
    ///
    /// # Errors
    /// The disk's.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.point("rename", from)?;
        std::fs::rename(from, to).map_err(|e| DiskError::new("rename", from, &e))
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync_dir(&self, path: &Path) -> Result<(), DiskError> {
        self.point("fsync", path)?;
        let synced = File::open(if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        })
        .and_then(|f| f.sync_all());
        synced.map_err(|e| DiskError::new("fsync", path, &e))
    }

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// The disk's.
    pub fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.point("remove", path)?;
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(DiskError::new("remove", path, &e)),
            _ => Ok(()),
        }
    }

    /// Writes a file so that either the old content or the new is there, whatever happens: side file, fsync, rename,
    /// fsync of the folder.
    ///
    /// # Errors
    /// The disk's; the old content stands then.
    pub fn replace(&self, path: &Path, side: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let file = self.open(side, true)?;
        self.write(&file, side, bytes)?;
        self.sync(&file, side)?;
        self.rename(side, path)?;
        path.parent().map_or(Ok(()), |folder| self.sync_dir(folder))
    }

    fn struck(&self) -> Option<FaultKind> {
        let fault = self.fault.as_ref()?;
        let point = fault.seen.fetch_add(1, Ordering::Relaxed) + 1;
        (point == fault.at || (point > fault.at && fault.kind == FaultKind::Full)).then_some(fault.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_parse_and_refuse_nonsense() {
        let fault: Fault = "full@3".parse().unwrap();
        assert_eq!((fault.kind, fault.at), (FaultKind::Full, 3));
        for bad in ["", "full", "full@", "full@0", "melt@3", "abort@-1"] {
            assert!(bad.parse::<Fault>().unwrap_err().contains("abort@N"), "{bad}");
        }
    }

    #[test]
    fn a_full_disk_names_the_path_and_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let (path, side) = (dir.path().join("file"), dir.path().join("side"));
        Disk::default().replace(&path, &side, b"old content").unwrap();
        for at in 1..=4 {
            let disk = Disk::new(Some(Arc::new(Fault::new(FaultKind::Full, at))));
            let error = disk.replace(&path, &side, b"new content").unwrap_err();
            assert!(
                error.is_full() && error.to_string().contains(side.to_str().unwrap()),
                "{error}"
            );
            assert_eq!(std::fs::read(&path).unwrap(), b"old content");
            assert!(disk.point("write", &path).is_err(), "a full disk stays full");
        }
    }
}
