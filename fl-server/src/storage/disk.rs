//! All writes below the data folder, with fault injection: a test can make any of them the last.
//!
//! A *persistence point* is a step that changes what is on disk: a write, an fsync, a rename, an fsync of a folder, a
//! removal, a commit of the store. An injected fault triggers at the n-th point. No other module of this crate writes files
//! below the data folder.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fl_cli::folder::advice;
use fl_proto::open_regular;
use tokio::time::Instant;

use crate::rate_limited::LogLimit;

/// Mode of a folder: only the owner may read clients' updates.
const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;
/// First and longest back-off while too many files are open.
const BACK_OFF: Duration = Duration::from_millis(10);
const MAX_BACK_OFF: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action} {}: {why}{advice}", path.display())]
pub struct DiskError {
    /// The operation: `write`, `fsync`, ..
    pub action: &'static str,
    pub path: PathBuf,
    pub why: String,
    pub kind: ErrorKind,
    /// Whether too many files are open, in this process or on the machine. The disk is fine.
    busy: bool,
    advice: String,
}

impl DiskError {
    pub(crate) fn new(action: &'static str, path: &Path, error: &io::Error) -> Self {
        Self {
            action,
            path: path.to_owned(),
            why: error.to_string(),
            kind: error.kind(),
            busy: is_busy(error),
            advice: match (advice(path, error.kind()), error.kind()) {
                _ if is_busy(error) => "; raise the limit of open files (ulimit -n)".to_owned(),
                (space, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                    format!("; {space}, and start the server again: nothing is lost")
                }
                (advice, _) if advice.is_empty() => advice,
                (advice, _) => format!("; {advice}"),
            },
        }
    }

    pub fn is_full(&self) -> bool {
        matches!(self.kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }

    /// Whether only a file descriptor is missing: a retry may succeed.
    pub fn is_busy(&self) -> bool {
        self.busy
    }
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Opens a file for reading.
///
/// # Errors
/// The system's; `InvalidInput` for a folder, pipe or device, on which a read could block forever.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().read(true), path)
}

/// The files of a folder, by name.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, DiskError> {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Ends the process at once, as SIGKILL does, in the middle of a write.
    Abort,
    /// The disk is full from then on; the first write is partial.
    Full,
    /// Too many files are open once, at the next open of a file or folder.
    Busy,
}

/// A fault at one persistence point, counted from 1. As text: `abort@17`, `full@17`, `busy@17`.
#[derive(Debug)]
pub struct Fault {
    kind: FaultKind,
    at: u64,
    seen: AtomicU64,
    /// Whether a `Busy` fault has happened.
    spent: AtomicBool,
}

impl Fault {
    /// A fault at the `at`-th point; at `u64::MAX` it only counts points.
    pub fn new(kind: FaultKind, at: u64) -> Self {
        Self {
            kind,
            at,
            seen: AtomicU64::new(0),
            spent: AtomicBool::new(false),
        }
    }

    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, at) = text.split_once('@').unwrap_or((text, ""));
        match (kind, at.parse()) {
            ("abort", Ok(at @ 1..)) => Ok(Self::new(FaultKind::Abort, at)),
            ("full", Ok(at @ 1..)) => Ok(Self::new(FaultKind::Full, at)),
            ("busy", Ok(at @ 1..)) => Ok(Self::new(FaultKind::Busy, at)),
            _ => Err(format!(
                "a fault is `abort@N`, `full@N` or `busy@N` with N from 1, not `{text}`"
            )),
        }
    }
}

/// The disk; clones share the fault and its count.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    fault: Option<Arc<Fault>>,
    patient: bool,
}

impl Disk {
    pub fn new(fault: Option<Arc<Fault>>) -> Self {
        Self { fault, patient: false }
    }

    /// `patient`: for work that no client retries. While too many files are open, a patient disk waits; otherwise that is an
    /// error, see [`DiskError::is_busy`].
    pub(crate) fn patient(self, patient: bool) -> Self {
        Self { patient, ..self }
    }

    /// Passes the persistence point before `action` at `path`.
    ///
    /// # Errors
    /// The injected fault.
    pub fn point(&self, action: &'static str, path: &Path) -> Result<(), DiskError> {
        match self.struck() {
            None | Some(FaultKind::Busy) => Ok(()),
            Some(FaultKind::Abort) => std::process::abort(),
            Some(FaultKind::Full) => Err(DiskError::new(action, path, &ErrorKind::StorageFull.into())),
        }
    }

    pub fn create_dir(&self, path: &Path) -> Result<(), DiskError> {
        if path.is_dir() {
            return Ok(());
        }
        self.point("create", path)?;
        let created = DirBuilder::new().recursive(true).mode(FOLDER).create(path);
        created.map_err(|e| DiskError::new("create", path, &e))?;
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    /// Removes the permissions of all others on a folder and everything in it.
    ///
    /// # Errors
    /// The disk's; a folder of another owner is no error.
    pub fn make_private(&self, path: &Path) -> Result<(), DiskError> {
        let failed = |e: io::Error| DiskError::new("set the mode of", path, &e);
        let meta = path.symlink_metadata().map_err(failed)?;
        if !meta.is_dir() && !meta.is_file() {
            return Ok(());
        }
        let mode = if meta.is_dir() { FOLDER } else { FILE };
        if meta.permissions().mode() & 0o077 != 0 {
            match std::fs::set_permissions(path, Permissions::from_mode(mode)) {
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    tracing::warn!(path = %path.display(), "other users may read this folder or file: its mode cannot be changed");
                }
                set => set.map_err(failed)?,
            }
        }
        if meta.is_dir() {
            for entry in self.opened("read", path, || std::fs::read_dir(path))? {
                self.make_private(&entry.map_err(failed)?.path())?;
            }
        }
        Ok(())
    }

    /// Opens or creates a file for reading and writing; `empty` truncates it.
    pub fn open(&self, path: &Path, empty: bool) -> Result<File, DiskError> {
        self.point("create", path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(empty).mode(FILE);
        self.opened("create", path, || open_regular(&mut options.clone(), path))
    }

    /// Opens a regular file for reading; `None` if it does not exist.
    pub fn read(&self, path: &Path) -> Result<Option<File>, DiskError> {
        self.opened("open", path, || match open_file(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        })
    }

    /// Writes `bytes` at the position of `file`; `path` is for the error.
    ///
    /// # Errors
    /// The disk's; an unknown part of `bytes` was then written.
    pub fn write(&self, mut file: &File, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let written = match self.struck() {
            None | Some(FaultKind::Busy) => file.write_all(bytes),
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
    pub fn sync(&self, file: &File, path: &Path) -> Result<(), DiskError> {
        self.point("fsync", path)?;
        file.sync_all().map_err(|e| DiskError::new("fsync", path, &e))
    }

    /// As [`Disk::sync`], without the times of the file: for a file that grows.
    pub fn sync_data(&self, file: &File, path: &Path) -> Result<(), DiskError> {
        self.point("fsync", path)?;
        file.sync_data().map_err(|e| DiskError::new("fsync", path, &e))
    }

    /// Renames a file within one folder tree, replacing the target.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.point("rename", from)?;
        std::fs::rename(from, to).map_err(|e| DiskError::new("rename", from, &e))
    }

    /// Makes the names in a folder durable.
    pub fn sync_dir(&self, path: &Path) -> Result<(), DiskError> {
        self.point("fsync", path)?;
        let folder = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let folder = self.opened("open", path, || File::open(folder))?;
        folder.sync_all().map_err(|e| DiskError::new("fsync", path, &e))
    }

    pub fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.point("remove", path)?;
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(DiskError::new("remove", path, &e)),
            _ => Ok(()),
        }
    }

    /// Replaces a file atomically: side file, fsync, rename, fsync of the folder.
    ///
    /// # Errors
    /// The disk's; the old content is then unchanged.
    pub fn replace(&self, path: &Path, side: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let file = self.open(side, true)?;
        self.write(&file, side, bytes)?;
        self.sync(&file, side)?;
        self.rename(side, path)?;
        path.parent().map_or(Ok(()), |folder| self.sync_dir(folder))
    }

    /// Opens something. A patient disk retries until a file descriptor is free.
    fn opened<T>(&self, action: &'static str, path: &Path, open: impl Fn() -> io::Result<T>) -> Result<T, DiskError> {
        let mut pause = BACK_OFF;
        let mut limited = LogLimit::default();
        loop {
            match self.busy().map_or_else(&open, Err) {
                Err(error) if self.patient && is_busy(&error) => {
                    if let Some(times) = limited.due(Instant::now()) {
                        tracing::warn!(
                            %error, path = %path.display(), times,
                            "too many open files; waiting for one to be closed. Raise the limit of open files (ulimit -n)"
                        );
                    }
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(MAX_BACK_OFF);
                }
                opened => return opened.map_err(|e| DiskError::new(action, path, &e)),
            }
        }
    }

    /// What the system would say if it were busy, if a fault says so.
    fn busy(&self) -> Option<io::Error> {
        let fault = self.fault.as_ref().filter(|fault| fault.kind == FaultKind::Busy)?;
        let strikes = fault.seen() >= fault.at && !fault.spent.swap(true, Ordering::Relaxed);
        strikes.then(|| io::Error::from_raw_os_error(libc::EMFILE))
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
    fn what_lacks_only_a_descriptor_is_busy_and_a_patient_disk_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (path, side) = (dir.path().join("file"), dir.path().join("side"));
        let busy = |at| Disk::new(Some(Arc::new(Fault::new(FaultKind::Busy, at))));
        for at in 1..=4 {
            let error = busy(at).replace(&path, &side, b"content").unwrap_err();
            assert!(error.is_busy() && !error.is_full(), "{at}: {error}");
            assert!(error.to_string().contains("ulimit -n"), "{error}");
            busy(at).patient(true).replace(&path, &side, b"content").unwrap();
        }
        let disk = busy(1);
        disk.point("write", &path).unwrap();
        assert!(disk.read(&path).unwrap_err().is_busy());
        assert!(disk.read(&path).unwrap().is_some(), "once");
    }

    #[test]
    fn what_is_made_is_for_its_owner_only_and_what_was_there_becomes_so() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let (folder, disk) = (dir.path().join("data/inner"), Disk::default());
        disk.create_dir(&folder).unwrap();
        disk.replace(&folder.join("file"), &folder.join("side"), b"content")
            .unwrap();
        assert_eq!((mode(&folder), mode(&folder.join("file"))), (FOLDER, FILE));
        for (path, open) in [(folder.join("file"), 0o644), (folder.clone(), 0o755)] {
            std::fs::set_permissions(path, Permissions::from_mode(open)).unwrap();
        }
        disk.make_private(&dir.path().join("data")).unwrap();
        assert_eq!((mode(&folder), mode(&folder.join("file"))), (FOLDER, FILE));
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
