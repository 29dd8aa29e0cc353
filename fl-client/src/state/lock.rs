//! One process at a time: the system releases the lock when the process ends in any way.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock at `path` without waiting.
    ///
    /// # Errors
    /// `State` if another process holds the lock or the file cannot be made.
    pub(crate) fn take(path: &Path) -> Result<Self, Error> {
        let open = File::options().create(true).truncate(false).write(true).open(path);
        let file = open.map_err(|e| Error::io(path, "open the lock", &e))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Error::state(
                path,
                "another client uses this state folder; give each client its own `state`",
            )),
            Err(TryLockError::Error(e)) => Err(Error::io(path, "lock the state folder", &e)),
        }
    }
}
