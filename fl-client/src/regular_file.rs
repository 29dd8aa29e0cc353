//! Opens files that another program may have replaced: by a pipe, which would be waited for without end, or by a device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// If it cannot be opened, or is not a regular file.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// As [`open`], with these options.
pub(crate) fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Without effect on regular files; without it, opening a pipe waits for its other end.
    let flag = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = options.custom_flags(flag).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_or_a_folder_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        for path in [path.as_path(), dir.path()] {
            assert_eq!(open(path).unwrap_err().to_string(), "is not a file");
        }
        assert!(open_with(OpenOptions::new().write(true), &path).is_err());
    }
}
