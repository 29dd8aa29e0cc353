//! Unix sockets that only their owner may use, at paths of any length.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

// Longest path of a socket, in bytes (`sun_path`).
const MAX_PATH: usize = 107;

/// Listens at `path`, in the place of a socket that nobody needs any more. Does not block.
///
/// # Errors
/// The system's; some file systems have no sockets.
pub fn listen_private(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (short, _folder) = short(path)?;
    let listener = UnixListener::bind(short)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to whoever listens at `path`; `None` if nobody does.
///
/// # Errors
/// The system's: that the caller may not is no sign that nobody listens.
pub fn connect_private(path: &Path) -> io::Result<Option<UnixStream>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let connected = short(path).and_then(|(short, _folder)| UnixStream::connect(short));
    match connected {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A name of `path` that is short enough, as long as the folder is open.
fn short(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path.to_owned(), None));
    };
    if path.as_os_str().len() <= MAX_PATH {
        return Ok((path.to_owned(), None));
    }
    let folder = File::open(folder)?;
    let short = Path::new("/proc/self/fd")
        .join(folder.as_raw_fd().to_string())
        .join(name);
    Ok((short, Some(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_listened_at_and_connected_and_nobody_there_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["s", &"long".repeat(50)] {
            let folder = dir.path().join(folder);
            let path = folder.join("socket");
            assert!(connect_private(&path).unwrap().is_none(), "no folder");
            fs::create_dir(&folder).unwrap();
            assert!(connect_private(&path).unwrap().is_none(), "no socket");
            let listener = listen_private(&path).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert!(connect_private(&path).unwrap().is_some());
            drop(listener);
            assert!(connect_private(&path).unwrap().is_none(), "what was left of a socket");
            drop(listen_private(&path).unwrap());
        }
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(connect_private(&dir.path().join("file").join("socket")).is_err());
    }
}
