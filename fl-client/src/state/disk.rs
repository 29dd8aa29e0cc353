//! Files that are replaced atomically and read up to a bound.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use crate::error::Error;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    pub(crate) sync: bool,
}

impl Disk {
    /// Replaces `path` atomically by the concatenation of `parts`: after a crash or an error the old file or the new one is
    /// there.
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

    /// As [`Disk::replace`], for a file that is replaced in every round: writes over the file before the last one, which
    /// stays beside it with the extension `new`. For a new file, a file system allocates blocks and pages, and ext4 also
    /// starts to write it to the medium when it replaces another. Takes the space of both files. On an error, the
    /// file is the old one or the new one, whole.
    pub(crate) fn replace_in_turn(&self, path: &Path, parts: &[&[u8]]) -> Result<(), Error> {
        let aside = path.with_extension("new");
        let before = path.with_extension("before");
        let failed = |e| Error::io(path, "write", &e);
        let written = self.write_over(&aside, parts);
        if written.is_err() {
            // Frees the space for a retry. The file may not exist.
            let _ = std::fs::remove_file(&aside);
        }
        written.map_err(failed)?;
        // A crash may have left it. Where a file cannot have two names, the old one is not kept.
        let _ = std::fs::remove_file(&before);
        let kept = std::fs::hard_link(path, &before).is_ok();
        std::fs::rename(&aside, path).map_err(failed)?;
        if kept {
            std::fs::rename(&before, &aside).map_err(failed)?;
        }
        path.parent().map_or(Ok(()), |folder| self.sync_folder(folder))
    }

    /// Writes `parts` over the file at `path`, or to a new file if others share it.
    fn write_over(&self, path: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
        let Some(mut file) = open_own(path) else {
            // Another name of the same file must keep its content.
            let _ = std::fs::remove_file(path);
            return self.write(path, parts);
        };
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.set_len(parts.iter().map(|part| part.len() as u64).sum())?;
        if self.sync { file.sync_data() } else { Ok(()) }
    }

    /// Makes changed names in a folder durable.
    pub(crate) fn sync_folder(&self, folder: &Path) -> Result<(), Error> {
        if !self.sync {
            return Ok(());
        }
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| Error::io(folder, "write", &e))
    }

    /// Moves a folder to a path that does not exist, possibly in another folder.
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

/// Opens a regular file that has no other name; `None` if there is none.
#[cfg(unix)]
fn open_own(path: &Path) -> Option<File> {
    use std::os::unix::fs::MetadataExt as _;
    let found = path.symlink_metadata().ok()?;
    (found.is_file() && found.nlink() == 1).then_some(())?;
    File::options().write(true).open(path).ok()
}

/// This system does not say how many names a file has.
#[cfg(not(unix))]
fn open_own(_: &Path) -> Option<File> {
    None
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

    #[test]
    fn a_file_replaced_in_turn_is_the_last_one_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for sync in [true, false] {
            let disk = Disk { sync };
            for (a, b) in [
                ("the first", " is long"),
                ("2nd", ""),
                ("third: ", "longer than the first"),
                ("", ""),
            ] {
                disk.replace_in_turn(&path, &[a.as_bytes(), b.as_bytes()]).unwrap();
                assert_eq!(disk.read(&path, 99).unwrap().unwrap(), [a, b].concat().as_bytes());
            }
        }
        assert!(std::fs::read_dir(dir.path()).unwrap().count() <= 2);
    }

    /// What a kill leaves: the files `f`, `f.new` and `f.before`; `None` if there is none, `=` for another name of `f`.
    #[cfg(unix)]
    #[test]
    fn a_crash_at_any_point_of_replacing_in_turn_leaves_a_whole_file() {
        for (f, new, before) in [
            ("old", None, None),
            ("old", Some(""), None),
            ("old", Some("ne"), None),
            ("old", Some("new, but of the old length"), None),
            ("old", Some("new"), None),
            ("old", Some("new"), Some("=")),
            ("new", None, Some("old")),
            ("new", Some("old"), None),
            // Of a copy that keeps links, or of no order of ours.
            ("old", Some("="), None),
            ("old", Some("="), Some("=")),
            ("old", Some("new"), Some("older")),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            let disk = Disk { sync: false };
            std::fs::write(&path, f).unwrap();
            for (extension, content) in [("new", new), ("before", before)] {
                let beside = path.with_extension(extension);
                match content {
                    None => {}
                    Some("=") => std::fs::hard_link(&path, beside).unwrap(),
                    Some(content) => std::fs::write(beside, content).unwrap(),
                }
            }
            for next in ["third", "4th", "the fifth"] {
                disk.replace_in_turn(&path, &[next.as_bytes()]).unwrap();
                assert_eq!(std::fs::read_to_string(&path).unwrap(), next, "{f} {new:?} {before:?}");
                assert!(!path.with_extension("before").exists());
            }
            assert_eq!(std::fs::read_to_string(path.with_extension("new")).unwrap(), "4th");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_with_another_name_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let (path, backup) = (dir.path().join("f"), dir.path().join("backup"));
        let disk = Disk { sync: false };
        disk.replace_in_turn(&path, &[b"1"]).unwrap();
        std::fs::hard_link(&path, &backup).unwrap();
        for next in [b"2", b"3", b"4", b"5"] {
            disk.replace_in_turn(&path, &[next]).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), next);
        }
        assert_eq!(std::fs::read(&backup).unwrap(), b"1");
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
