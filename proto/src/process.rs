//! What a process asks of the system when it starts: a limit of open files and connections, and private files.

/// Raises this process's limit of open files as far as the system allows without privileges, and returns it. `None`: there is
/// no limit, or the system does not say. Called when a program starts.
pub fn raise_open_files() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Where the kernel does not grant the hard limit (macOS), the soft limit stays.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    open_files()
}

/// Files and connections that this process may have open. `None`: there is no limit, or the system does not say.
pub fn open_files() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    return None;
}

/// Makes every file that this process creates from now on private to its owner, including files of other crates. Called at
/// the start of a program that keeps secrets, but not by commands that write a file for the user.
pub fn make_new_files_private() {
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Creates a folder, and those above it, for its owner only. Removes the permissions of others from a folder that exists.
///
/// # Errors
/// Errors of the system.
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

/// Creates or truncates a file for writing, for its owner only.
///
/// # Errors
/// Errors of the system.
pub fn make_private_file(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
