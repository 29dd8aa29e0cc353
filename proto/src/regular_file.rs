//! Opens files that another program may have replaced: by a pipe, which would be waited for without end, or by a device.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a regular file with these options, never anything else.
///
/// # Errors
/// If it cannot be opened; `InvalidInput` if it is not a regular file.
pub fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // Without effect on regular files; without it, opening a pipe waits for its other end.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_or_a_folder_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [pipe.as_path(), dir.path()] {
            let why = open_regular(File::options().read(true), path).unwrap_err();
            assert_eq!(why.to_string(), "not a regular file");
        }
        assert!(open_regular(File::options().write(true), &pipe).is_err());
        let file = dir.path().join("file");
        assert!(open_regular(File::options().write(true).create(true).truncate(true), &file).is_ok());
    }
}
