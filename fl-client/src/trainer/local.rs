//! What outlives the client of one run in the state folder: its local tensors, in a safetensors file, and what the trainer keeps.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::tensors::Tensors;
use crate::learner::RunTensors;
use crate::local_path::local_path;
use crate::state::Disk;

/// The file of one run.
#[derive(Debug)]
pub(super) struct LocalFile {
    path: PathBuf,
    disk: Disk,
}

impl LocalFile {
    /// The file of this run in the state folder. `sync`: whether it survives a power loss.
    pub(super) fn new(state: &Path, sync: bool, run: &RunTensors) -> anyhow::Result<Self> {
        Ok(Self {
            path: local_path(state, run, "safetensors")?,
            disk: Disk { sync },
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Succeeds if nothing was stored yet, or what was stored are the run's local tensors.
    pub(super) fn check(&self, tensors: &Tensors) -> anyhow::Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        let stored = std::fs::read(&self.path).map_err(anyhow::Error::from);
        stored.and_then(|bytes| tensors.check_local(&bytes)).with_context(|| {
            format!(
                "{}: restore it from a backup, or delete it to start with the trainer's own local tensors",
                self.path.display()
            )
        })
    }

    pub(super) fn save(&self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.disk.replace(&self.path, &[bytes])?)
    }
}
