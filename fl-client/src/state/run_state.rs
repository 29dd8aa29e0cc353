//! The part of the state folder that belongs to one run.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::disk::Disk;

#[derive(Debug)]
pub(crate) struct RunState {
    pub(super) folder: PathBuf,
    pub(super) disk: Disk,
}

impl RunState {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What `parse` finds in a file that may be missing: nothing if it is broken, which the log says with its `consequence`.
    pub(super) fn optional<T, E: Display>(
        &self,
        path: &Path,
        max: u64,
        consequence: &str,
        parse: impl FnOnce(Vec<u8>) -> Result<Option<T>, E>,
    ) -> Option<T> {
        let found = match self.disk.read(path, max) {
            Ok(Some(bytes)) => parse(bytes).map_err(|e| e.to_string()),
            Ok(None) => Ok(None),
            Err(e) => Err(e.to_string()),
        };
        found.unwrap_or_else(|why| {
            tracing::warn!(path = %path.display(), why, "{consequence}");
            None
        })
    }
}
