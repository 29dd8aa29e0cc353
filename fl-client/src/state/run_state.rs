//! The part of the state folder that belongs to one run.

use std::path::PathBuf;

use super::disk::Disk;

/// The folder of one run. The files in it have a module each.
#[derive(Debug)]
pub(crate) struct RunState {
    pub(super) folder: PathBuf,
    pub(super) disk: Disk,
}

impl RunState {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
