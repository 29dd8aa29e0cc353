//! The number of the store's last commit, once more, in a file beside it.
//!
//! After a crash the database drops whatever of its log it cannot read, without a word: one byte that the disk has
//! flipped takes every later commit along. Each commit therefore carries its number, and the same number is written
//! here once the commit is durable. A store that is behind this file has lost what it had acknowledged.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::storage::disk::{Disk, DiskError};

/// Eight bytes of number, four of CRC-32C.
const SLOT: usize = 12;
/// Written in turn, so that a write that is torn leaves the number before.
const SLOTS: usize = 2;

/// The file and what it says.
#[derive(Debug)]
pub(super) struct Head {
    file: File,
    path: PathBuf,
    commits: Option<u64>,
    is_new: bool,
}

impl Head {
    /// Opens `dir/head`, creating it if need be.
    pub(super) fn open(dir: &Path, disk: &Disk) -> Result<Self, DiskError> {
        let path = dir.join("head");
        let is_new = !path.exists();
        let file = disk.open(&path, false)?;
        let mut bytes = Vec::new();
        let read = (&file).take((SLOT * SLOTS) as u64).read_to_end(&mut bytes);
        read.map_err(|e| DiskError::new("read", &path, &e))?;
        let slots = bytes.as_chunks::<SLOT>().0.iter();
        let commits = slots.filter_map(number).max();
        Ok(Self {
            file,
            path,
            commits,
            is_new,
        })
    }

    /// Commits that were durable when this was written; `None` if nothing readable is there.
    pub(super) fn commits(&self) -> Option<u64> {
        self.commits
    }

    /// Whether there was no such file.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that so many commits are durable. Not synced: it survives the death of the process, and after a power loss
    /// an older number only makes the check weaker.
    pub(super) fn note(&mut self, commits: u64, disk: &Disk) -> Result<(), DiskError> {
        let number = commits.to_le_bytes();
        let bytes = [&number[..], &crc32c::crc32c(&number).to_le_bytes()].concat();
        let slot = SLOT as u64 * (commits % SLOTS as u64);
        let at = self.file.seek(SeekFrom::Start(slot));
        at.map_err(|e| DiskError::new("write", &self.path, &e))?;
        disk.write(&self.file, &self.path, &bytes)?;
        self.commits = Some(commits);
        Ok(())
    }
}

fn number(slot: &[u8; SLOT]) -> Option<u64> {
    let (number, crc) = slot.split_first_chunk::<8>()?;
    (crc == crc32c::crc32c(number).to_le_bytes()).then(|| u64::from_le_bytes(*number))
}
