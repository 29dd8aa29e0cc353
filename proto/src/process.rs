//! What a process asks of the system when it starts: how many files and connections it may have open, and that what it writes
//! is for its owner only.

/// Raises this process's limit of open files as far as the system allows without privileges, and returns it; `None` if there
/// is none, or if the system does not tell. To be called when a program starts.
pub fn raise_open_files() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Where the hard limit is not one that the kernel grants (macOS), the soft one stays.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    open_files()
}

/// Files and connections that this process may have open; `None` if there is no limit, or if the system does not tell.
pub fn open_files() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    return None;
}

/// Has every file that this process makes from now on be for its owner only, also those that other crates make. To be called
/// when a program starts that keeps what others should not see; what a user asked to be written is not.
pub fn make_new_files_private() {
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Makes a folder, and those above it, for its owner only; takes from others what they may do with one that is there.
///
/// # Errors
/// The system's.
pub fn make_private_folder(path: &std::path::Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mut mode = path.metadata()?.permissions();
        if mode.mode() & 0o077 != 0 {
            mode.set_mode(0o700);
            std::fs::set_permissions(path, mode)?;
        }
        Ok(())
    }
    #[cfg(not(unix))]
    std::fs::create_dir_all(path)
}

/// Makes a file for writing, for its owner only, or empties it.
///
/// # Errors
/// The system's.
pub fn make_private_file(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
