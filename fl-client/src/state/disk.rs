//! Files that are replaced atomically and read up to a bound.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use crate::error::Error;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    /// Whether a file is synced to the medium before it counts as written.
    pub(crate) sync: bool,
}

impl Disk {
    /// Replaces `path` atomically by the concatenation of `parts`: after a crash the old file or the new one is there.
    ///
    /// # Errors
    /// `State` with the system's error; the old file is unchanged then.
    pub(crate) fn replace(&self, path: &Path, parts: &[&[u8]]) -> Result<(), Error> {
        let aside = path.with_extension("new");
        let failed = |e| Error::io(path, "write", &e);
        let written = self.write(&aside, parts);
        if written.is_err() {
            // Frees the space for a retry. The file may not exist.
            let _ = std::fs::remove_file(&aside);
        }
        written.map_err(failed)?;
        std::fs::rename(&aside, path).map_err(failed)?;
        path.parent().map_or(Ok(()), |folder| self.sync_folder(folder))
    }

    /// Makes changed names in a folder durable.
    ///
    /// # Errors
    /// `State` with the system's error.
    pub(crate) fn sync_folder(&self, folder: &Path) -> Result<(), Error> {
        if !self.sync {
            return Ok(());
        }
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| Error::io(folder, "write", &e))
    }

    /// Moves a folder to a path that does not exist, possibly in another folder.
    ///
    /// # Errors
    /// `State` with the system's error; the folder is not moved then.
    pub(crate) fn move_folder(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let (Some(left), Some(entered)) = (from.parent(), to.parent()) else {
            return Err(Error::state(from, "cannot be moved"));
        };
        fl_proto::make_private_folder(entered).map_err(|e| Error::io(entered, "make the folder", &e))?;
        std::fs::rename(from, to).map_err(|e| Error::io(from, "move", &e))?;
        self.sync_folder(entered)?;
        self.sync_folder(left)
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
        let mut file = fl_proto::make_private_file(path)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        if self.sync { file.sync_all() } else { Ok(()) }
    }

    /// The whole file; `None` if there is none.
    ///
    /// # Errors
    /// `State` if it is longer than `max` or cannot be read.
    pub(crate) fn read(&self, path: &Path, max: u64) -> Result<Option<Vec<u8>>, Error> {
        let Some((bytes, len)) = self.read_front(path, max)? else {
            return Ok(None);
        };
        if len > max {
            return Err(Error::state(
                path,
                format!("is {len} bytes long, more than the {max} it can have"),
            ));
        }
        Ok(Some(bytes))
    }

    /// The first `max` bytes of the file, and its length; `None` if there is none.
    ///
    /// # Errors
    /// `State` if it cannot be read.
    pub(crate) fn read_front(&self, path: &Path, max: u64) -> Result<Option<(Vec<u8>, u64)>, Error> {
        let failed = |e| Error::io(path, "read", &e);
        let file = match File::open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let len = file.metadata().map_err(failed)?.len();
        let mut bytes = Vec::with_capacity(len.min(max) as usize);
        file.take(max).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some((bytes, len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_read_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for sync in [true, false] {
            let disk = Disk { sync };
            disk.replace(&path, &[b"hel", b"lo"]).unwrap();
            assert_eq!(disk.read(&path, 5).unwrap().unwrap(), b"hello");
            assert!(disk.read(&path, 4).unwrap_err().to_string().contains("5 bytes"));
            assert_eq!(disk.read_front(&path, 2).unwrap().unwrap(), (b"he".to_vec(), 5));
        }
        assert!(Disk { sync: true }.read(&dir.path().join("none"), 1).unwrap().is_none());
    }

    #[cfg(unix)]
    #[test]
    fn what_a_client_keeps_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let (state, disk) = (dir.path().join("state"), Disk { sync: false });
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
        fl_proto::make_private_folder(&state).unwrap();
        disk.replace(&state.join("residual"), &[b"what was not sent"]).unwrap();
        assert_eq!((mode(&state), mode(&state.join("residual"))), (0o700, 0o600));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_the_old_file_and_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let disk = Disk { sync: false };
        disk.replace(&path, &[b"old"]).unwrap();
        std::os::unix::fs::symlink("/dev/full", dir.path().join("f.new")).unwrap();
        let error = disk.replace(&path, &[b"new"]).unwrap_err().to_string();
        assert!(error.contains("free some space"), "{error}");
        assert_eq!(disk.read(&path, 9).unwrap().unwrap(), b"old");
    }
}
