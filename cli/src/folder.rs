//! What checks find out about files and folders, without changing them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::findings::Line;

/// The folder, or the first one above it that exists.
pub fn nearest(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let existing = absolute.ancestors().find(|folder| folder.is_dir());
    existing.unwrap_or(Path::new("/")).to_owned()
}

/// Creates a file, writes it to the disk and removes it. Permissions alone say nothing of a file system that is mounted to be
/// read only, and an empty file nothing of one that is full.
///
/// # Errors
/// Those of the system.
pub fn try_write(folder: &Path) -> io::Result<()> {
    let path = probe(folder);
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let written = fill(file);
    let removed = fs::remove_file(&path);
    written.and(removed)
}

fn fill(mut file: File) -> io::Result<()> {
    file.write_all(&[0; 4096])?;
    file.sync_all()
}

/// What to do about a folder in which [`try_write`] failed. `owner`: what to do unless the disk is full.
pub fn after(folder: &Path, error: &io::Error, owner: String) -> String {
    match error.kind() {
        kind @ (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => advice(folder, kind),
        _ => owner,
    }
}

/// What a person can do about an error of the system at `path`; empty if that is not known.
pub fn advice(path: &Path, kind: io::ErrorKind) -> String {
    match kind {
        #[cfg(unix)]
        io::ErrorKind::StorageFull
            if rustix::fs::statvfs(nearest(path)).is_ok_and(|of| of.f_files > 0 && of.f_favail == 0) =>
        {
            "the file system has space but no inode left: remove files, small ones".to_owned()
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space".to_owned(),
        #[cfg(unix)]
        io::ErrorKind::PermissionDenied => {
            use std::os::unix::fs::MetadataExt as _;
            let at = nearest(path);
            let owner = at.metadata().map(|of| of.uid()).ok();
            let own = rustix::process::geteuid().as_raw();
            let at = at.display();
            match owner.filter(|owner| *owner != own) {
                Some(owner) => {
                    format!("{at} belongs to user {owner}, and this is user {own}: `sudo chown -R {own} {at}`")
                }
                None => format!("check the mode of {at}"),
            }
        }
        _ => String::new(),
    }
}

/// The path of a file that a check creates and removes.
pub fn probe(folder: &Path) -> PathBuf {
    folder.join(format!(".fl-check-{}", std::process::id()))
}

/// Bytes that this user may still write on the disk of a folder.
///
/// # Errors
/// Those of the system.
#[cfg(unix)]
pub fn free(folder: &Path) -> io::Result<u64> {
    let about = rustix::fs::statvfs(folder)?;
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Bytes that this user may still write on the disk of a folder.
///
/// # Errors
/// Always: the system is not asked.
#[cfg(not(unix))]
pub fn free(_: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether a file with a secret is for its owner only. `check`: the name of the line.
#[cfg(unix)]
pub fn private(check: &str, path: &Path) -> Line {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = path.display();
    match path.metadata() {
        Err(error) => Line::wrong(check, format!("{shown}: {error}"), "restore it from a backup"),
        Ok(about) => match about.permissions().mode() & 0o777 {
            mode if mode & 0o077 == 0 => Line::good(check, format!("{shown} is for its owner only")),
            mode => Line::warning(
                check,
                format!("{shown} has mode {mode:04o}: other users may read or replace it"),
                format!("chmod 600 {shown}"),
            ),
        },
    }
}

/// Whether a file with a secret is there; this system has no modes.
#[cfg(not(unix))]
pub fn private(check: &str, path: &Path) -> Line {
    let shown = path.display();
    match path.metadata() {
        Err(error) => Line::wrong(check, format!("{shown}: {error}"), "restore it from a backup"),
        Ok(_) => Line::good(check, format!("{shown} is there")),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::findings::Level;

    #[test]
    fn writing_is_tried_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        try_write(folder.path()).unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        assert_eq!(nearest(&folder.path().join("not/there")), folder.path());
        assert!(free(folder.path()).unwrap() > 0);
        // No file can be made there, whoever asks.
        assert!(try_write(Path::new("/proc/self")).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_takes_an_empty_file_and_no_page() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = fill(full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(after(Path::new("/"), &error, "own it".to_owned()), "free some space");
        assert_eq!(
            after(
                Path::new("/"),
                &io::ErrorKind::PermissionDenied.into(),
                "own it".to_owned()
            ),
            "own it"
        );
    }

    #[test]
    fn a_secret_that_others_may_read_or_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "").unwrap();
        for (mode, level) in [
            (0o600, Level::Good),
            (0o400, Level::Good),
            (0o640, Level::Warning),
            (0o602, Level::Warning),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let line = private("key", &path);
            assert_eq!(line.level, level, "{mode:o}: {line:?}");
        }
        assert_eq!(private("key", &folder.path().join("none")).level, Level::Wrong);
    }

    #[test]
    fn advice_names_the_owner_and_what_is_used_up() {
        let dir = tempfile::tempdir().unwrap();
        assert!(advice(&dir.path().join("a/b"), io::ErrorKind::StorageFull).contains("space"));
        assert!(advice(dir.path(), io::ErrorKind::PermissionDenied).contains("mode"));
        assert_eq!(advice(dir.path(), io::ErrorKind::NotFound), "");
        if !rustix::process::geteuid().is_root() {
            let text = advice(Path::new("/etc/shadow"), io::ErrorKind::PermissionDenied);
            assert!(
                text.contains("belongs to user 0") && text.contains("sudo chown -R"),
                "{text}"
            );
        }
    }
}
