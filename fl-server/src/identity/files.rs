//! The files of the server's certificate and key, which are replaced together.

use std::fs::{File, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use fl_proto::{Issued, PairFiles, newest_pair, next_path};

use crate::storage::disk::{Disk, DiskError, open_file};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Tries to read a pair that another process replaces meanwhile.
const TRIES: usize = 3;

impl OwnFiles {
    /// The newest pair, with each file read by `read`.
    pub(crate) fn read<E>(&self, read: impl Fn(&Path) -> Result<String, E>) -> Result<Issued, E> {
        let mut pair = newest_pair(&self.certificate, &self.key, &read)?.0;
        for _ in 1..TRIES {
            if fl_proto::is_pair(&pair) {
                break;
            }
            pair = newest_pair(&self.certificate, &self.key, &read)?.0;
        }
        Ok(pair)
    }

    /// Replaces the pair. A crash or a full disk at any point leaves a pair, the old one or the new one; when this returns, the new
    /// one is durable. One process at a time: others wait.
    ///
    /// # Errors
    /// The disk's. The old pair is in use then, unless only the renaming of files failed.
    pub(crate) fn replace(&self, disk: &Disk, own: &Issued) -> Result<(), DiskError> {
        for path in [&self.certificate, &self.key] {
            disk.create_dir(folder(path))?;
        }
        let _turn = self.turn();
        // What an interrupted renewal left may be the only pair: it is not overwritten.
        self.settle(disk)?;
        let next_certificate = next_path(&self.certificate);
        let next_key = next_path(&self.key);
        // The certificate decides which pair is the newest, so it comes last.
        let written = write(disk, &next_key, &self.key, PRIVATE, &own.key)
            .and_then(|()| write(disk, &next_certificate, &self.certificate, PUBLIC, &own.certificate));
        if written.is_err() {
            // In the opposite order.
            let _ = std::fs::remove_file(&next_certificate);
            let _ = std::fs::remove_file(&next_key);
        }
        written?;
        // Whichever certificate says that it is the newer one: one of before may be of a clock that was ahead.
        rename(disk, &next_certificate, &self.certificate)?;
        rename(disk, &next_key, &self.key)
    }

    /// Finishes a renewal that was interrupted, and removes files that are of no use.
    ///
    /// # Errors
    /// The disk's: each file is as it was or renamed.
    pub(crate) fn settle(&self, disk: &Disk) -> Result<(), DiskError> {
        let next_certificate = next_path(&self.certificate);
        let next_key = next_path(&self.key);
        if !next_certificate.exists() && !next_key.exists() {
            return Ok(());
        }
        let at = match (self.certificate.exists(), self.key.exists()) {
            // The first pair was being made.
            (false, false) => PairFiles::Both,
            (true, false) => PairFiles::NextKey,
            _ => newest_pair(&self.certificate, &self.key, text)?.1,
        };
        if at == PairFiles::Next {
            rename(disk, &next_certificate, &self.certificate)?;
        }
        if at != PairFiles::Both && next_key.exists() {
            rename(disk, &next_key, &self.key)?;
        }
        disk.remove(&next_certificate)?;
        disk.remove(&next_key)
    }

    /// Keeps other processes from replacing the files until the result is dropped; `None` where the file system has no locks.
    fn turn(&self) -> Option<File> {
        let folder = File::open(folder(&self.certificate)).ok()?;
        folder.lock().ok()?;
        Some(folder)
    }
}

/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 64 * 1024;

fn text(path: &Path) -> Result<String, DiskError> {
    let text = open_file(path).and_then(|file| fl_compress::text::read(file, MAX_FILE));
    text.map_err(|error| DiskError::new("read", path, &error))
}

pub(crate) const PRIVATE: u32 = 0o600;
pub(crate) const PUBLIC: u32 = 0o644;

/// Writes a file durably, with the owner of the file that it will replace, and its mode unless the file is private.
pub(crate) fn write(disk: &Disk, path: &Path, before: &Path, mode: u32, text: &str) -> Result<(), DiskError> {
    let mut side = path.as_os_str().to_owned();
    side.push(".new");
    let side = PathBuf::from(side);
    let written = write_side(disk, &side, before, mode, text).and_then(|()| rename(disk, &side, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&side)))
}

fn write_side(disk: &Disk, side: &Path, before: &Path, mode: u32, text: &str) -> Result<(), DiskError> {
    let before = before.metadata().ok();
    // What a crash left may have another mode.
    disk.remove(side)?;
    let file = disk.open(side, true)?;
    like(&file, before.as_ref(), mode).map_err(|error| DiskError::new("write", side, &error))?;
    disk.write(&file, side, text.as_bytes())?;
    disk.sync(&file, side)
}

/// Gives a file the owner and the mode of the one before. So a command that root types leaves files that the server can read.
fn like(file: &File, before: Option<&Metadata>, mode: u32) -> std::io::Result<()> {
    if let Some(before) = before {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
            // Only root may.
            let _ = fchown(file, Some(before.uid()), Some(before.gid()));
        }
    }
    let mode = match before {
        Some(before) if mode == PUBLIC => before.permissions().mode() & 0o777,
        _ => mode,
    };
    file.set_permissions(Permissions::from_mode(mode))
}

fn rename(disk: &Disk, from: &Path, to: &Path) -> Result<(), DiskError> {
    disk.rename(from, to)?;
    disk.sync_dir(folder(to))
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fl_proto::Authority;
    use time::{Duration, OffsetDateTime};

    use super::*;
    use crate::storage::disk::{Fault, FaultKind};

    fn pair(seconds: i64) -> Issued {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000 + seconds).unwrap();
        let (authority, _) = Authority::create("fed", now, Duration::days(99)).unwrap();
        authority.issue_server(now, Duration::days(90)).unwrap()
    }

    fn folder_with(own: &Issued) -> (tempfile::TempDir, OwnFiles) {
        let dir = tempfile::tempdir().unwrap();
        let files = OwnFiles {
            certificate: dir.path().join("server.pem"),
            key: dir.path().join("server.key"),
        };
        std::fs::write(&files.certificate, &own.certificate).unwrap();
        std::fs::write(&files.key, &own.key).unwrap();
        (dir, files)
    }

    fn read(files: &OwnFiles) -> Issued {
        files.read(|path| std::fs::read_to_string(path)).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = dir
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_disk_that_is_full_at_any_point_leaves_a_pair_and_the_next_try_succeeds() {
        let [old, first, second] = [0, 60, 120].map(pair);
        let mut points = 0;
        for at in 1.. {
            let (dir, files) = folder_with(&old);
            let fault = Arc::new(Fault::new(FaultKind::Full, at));
            let failed = files.replace(&Disk::new(Some(Arc::clone(&fault))), &first);
            let found = read(&files);
            match &failed {
                Err(error) => assert!(error.is_full() && (found == old || found == first), "{at}: {error}"),
                Ok(()) => assert_eq!(found, first),
            }
            assert!(fl_proto::is_pair(&found), "{at}");
            files.replace(&Disk::default(), &second).unwrap();
            assert_eq!(read(&files), second, "{at}");
            assert_eq!(names(dir.path()), ["server.key", "server.pem"], "{at}");
            points = fault.seen();
            if failed.is_ok() {
                break;
            }
        }
        assert!(points >= 16, "{points}");
    }

    #[test]
    fn the_key_is_private_and_the_certificate_keeps_its_mode() {
        let (_dir, files) = folder_with(&pair(0));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        std::fs::set_permissions(&files.certificate, Permissions::from_mode(0o640)).unwrap();
        std::fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
        files.replace(&Disk::default(), &pair(60)).unwrap();
        assert_eq!((mode(&files.certificate), mode(&files.key)), (0o640, PRIVATE));
    }

    #[test]
    fn what_an_interrupted_renewal_left_is_finished_or_removed() {
        let (old, new) = (pair(0), pair(60));
        let (dir, files) = folder_with(&old);
        let (next_certificate, next_key) = (next_path(&files.certificate), next_path(&files.key));
        std::fs::write(&next_key, &new.key).unwrap();
        files.settle(&Disk::default()).unwrap();
        assert_eq!((read(&files), names(dir.path()).len()), (old, 2));
        std::fs::write(&next_key, &new.key).unwrap();
        std::fs::write(&next_certificate, &new.certificate).unwrap();
        files.settle(&Disk::default()).unwrap();
        assert_eq!((read(&files), names(dir.path()).len()), (new, 2));
    }
}
