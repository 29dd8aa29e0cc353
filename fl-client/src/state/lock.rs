//! One process at a time: the system releases the lock when the process ends in any way.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// How often the lock is tried, and how long between two tries: a process that was killed may hold it for a moment longer, as
/// may a program that it was about to start.
const TRIES: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(50);

impl Lock {
    /// Takes the lock at `path`; waits for at most a second.
    pub(crate) fn take(path: &Path) -> Result<Self, Error> {
        let open = File::options().create(true).truncate(false).write(true).open(path);
        let file = open.map_err(|e| Error::io(path, "open the lock", &e))?;
        for left in (0..TRIES).rev() {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if left > 0 => thread::sleep(BETWEEN),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(Error::io(path, "lock the state folder", &e)),
            }
        }
        Err(Error::state(
            path,
            "another client uses this state folder; give each client its own `state`",
        ))
    }
}
