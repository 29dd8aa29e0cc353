//! Durable, atomic writes of the files of a client's identity.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// Where a client's authority, certificate and key are, all PEM.
#[derive(Debug, Clone)]
pub struct IdentityFiles {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// For tests.
    pub(crate) fault: Option<Arc<Fault>>,
}

/// A fault at one of the system's operations, for tests.
#[derive(Debug)]
pub(crate) struct Fault {
    at: u64,
    abort: bool,
    reached: AtomicU64,
}

impl FromStr for Fault {
    type Err = String;

    /// `abort@N` or `full@N`: the process aborts before operation N, from 1, or the operation fails as on a full disk.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no fault; abort@N and full@N are");
        let (kind, at) = text.split_once('@').ok_or_else(bad)?;
        Ok(Self {
            at: at.parse().map_err(|_| bad())?,
            abort: match kind {
                "abort" => true,
                "full" => false,
                _ => return Err(bad()),
            },
            reached: AtomicU64::new(0),
        })
    }
}

impl Fault {
    fn reach(&self) -> io::Result<()> {
        if self.reached.fetch_add(1, Ordering::Relaxed) + 1 != self.at {
            return Ok(());
        }
        if self.abort {
            std::process::abort();
        }
        Err(io::Error::from(io::ErrorKind::StorageFull))
    }
}

impl IdentityFiles {
    /// The files at these paths.
    pub fn new(authority: PathBuf, certificate: PathBuf, key: PathBuf) -> Self {
        Self {
            authority,
            certificate,
            key,
            fault: None,
        }
    }

    /// With a fault at one of the writes, `full@N`, for tests.
    ///
    /// # Errors
    /// If the text names no fault.
    #[doc(hidden)]
    pub fn with_fault(self, fault: &str) -> Result<Self, String> {
        let fault = Some(Arc::new(fault.parse()?));
        Ok(Self { fault, ..self })
    }

    /// Replaces a file atomically: after a crash or an error the old file or the new one is there. For its owner only.
    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<(), Error> {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".new");
        let aside = PathBuf::from(aside);
        let written = self.write_aside(&aside, text).and_then(|()| {
            self.reach()?;
            std::fs::rename(&aside, path)
        });
        let written = written.and_then(|()| self.sync_folder(path));
        if written.is_err() {
            // Frees the space for a retry. The file may not exist.
            let _ = std::fs::remove_file(&aside);
        }
        written.map_err(|error| failed(path, &error))
    }

    /// Renames a file durably.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let renamed = self.reach().and_then(|()| std::fs::rename(from, to));
        renamed
            .and_then(|()| self.sync_folder(to))
            .map_err(|error| failed(to, &error))
    }

    fn write_aside(&self, aside: &Path, text: &str) -> io::Result<()> {
        self.reach()?;
        // A file that a crash left may have another mode.
        let _ = std::fs::remove_file(aside);
        let mut file = fl_proto::make_private_file(aside)?;
        self.reach()?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        self.reach()?;
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn reach(&self) -> io::Result<()> {
        self.fault.as_ref().map_or(Ok(()), |fault| fault.reach())
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull => {
            "; free some space and type the same command again (a running client tries again by itself)"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; this user must be allowed to write into the folder, or choose another one"
        }
        _ => "",
    };
    Error::state(path, format!("cannot be written: {error}{hint}"))
}
