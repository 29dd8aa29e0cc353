//! A copy of the number of the store's last commit, in a file beside the store.
//!
//! After a crash the database silently drops what it cannot read of its log: one flipped byte drops all later commits.
//! Each commit therefore carries its number, and this file gets the same number once the commit is durable. A store with a
//! lower number than this file has lost acknowledged commits.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use fl_compress::wire;

use crate::storage::disk::{Disk, DiskError};

/// Eight bytes of number, four of CRC-32C.
const SLOT: usize = 12;
/// Written in turn, so that a torn write leaves the number before it intact.
const SLOTS: usize = 2;

#[derive(Debug)]
pub(super) struct Head {
    file: File,
    path: PathBuf,
    commits: Option<u64>,
    is_new: bool,
}

impl Head {
    /// Opens `dir/head`, or creates it.
    pub(super) fn open(dir: &Path, disk: &Disk) -> Result<Self, DiskError> {
        let path = dir.join("head");
        let file = disk.open(&path, false)?;
        let mut bytes = Vec::new();
        let read = (&file).take((SLOT * SLOTS) as u64).read_to_end(&mut bytes);
        read.map_err(|e| DiskError::new("read", &path, &e))?;
        // A power loss leaves a new file that was not synced empty, or of zeros.
        let is_new = bytes.iter().all(|byte| *byte == 0);
        let slots = bytes.as_chunks::<SLOT>().0.iter();
        let commits = slots.filter_map(number).max();
        Ok(Self {
            file,
            path,
            commits,
            is_new,
        })
    }

    /// Number of durable commits when the file was written; `None` if the file has no intact number.
    pub(super) fn commits(&self) -> Option<u64> {
        self.commits
    }

    /// Whether the file did not exist before, or holds nothing.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the number of durable commits. Synced only while the file is new: the number survives a crash of the process, and an
    /// older number after a power loss only weakens the check.
    pub(super) fn note(&mut self, commits: u64, disk: &Disk) -> Result<(), DiskError> {
        let mut bytes = commits.to_le_bytes().to_vec();
        wire::seal(0, &mut bytes);
        let slot = SLOT as u64 * (commits % SLOTS as u64);
        let at = self.file.seek(SeekFrom::Start(slot));
        at.map_err(|e| DiskError::new("write", &self.path, &e))?;
        disk.write(&self.file, &self.path, &bytes)?;
        if std::mem::take(&mut self.is_new) {
            disk.sync(&self.file, &self.path)?;
            disk.sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        }
        self.commits = Some(commits);
        Ok(())
    }
}

fn number(slot: &[u8; SLOT]) -> Option<u64> {
    wire::checked(slot).and_then(|mut slot| slot.u64("commits")).ok()
}
