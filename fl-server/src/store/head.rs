//! The number of the store's last commit, once more, in a file beside it.
//!
//! After a crash the database drops whatever of its log it cannot read, without a word: one byte that the disk has
//! flipped takes every later commit along. Each commit therefore carries its number, and the same number is written
//! here once the commit is durable. A store that is behind this file has lost what it had acknowledged.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskError};

/// Eight bytes of number, four of CRC-32C.
const LEN: usize = 12;

/// The file and what it says.
#[derive(Debug)]
pub(super) struct Head {
    file: File,
    path: PathBuf,
    /// Commits that are durable. What cannot be read counts as none: the check is weaker then, never false.
    commits: u64,
}

impl Head {
    /// Opens `dir/head`, creating it if need be.
    pub(super) fn open(dir: &Path, disk: &Disk) -> Result<Self, DiskError> {
        let path = dir.join("head");
        let mut file = disk.open(&path, false)?;
        let mut bytes = [0; LEN];
        let commits = match file.read_exact(&mut bytes) {
            Ok(()) => read(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(DiskError::new("read", &path, &error)),
        };
        let commits = commits.unwrap_or(0);
        Ok(Self { file, path, commits })
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that so many commits are durable. Not synced: it survives the death of the process, and after a power loss
    /// an older number only makes the check weaker.
    pub(super) fn note(&mut self, commits: u64, disk: &Disk) -> Result<(), DiskError> {
        let number = commits.to_le_bytes();
        let bytes = [&number[..], &crc32c::crc32c(&number).to_le_bytes()].concat();
        let start = self.file.seek(SeekFrom::Start(0));
        start.map_err(|e| DiskError::new("write", &self.path, &e))?;
        disk.write(&self.file, &self.path, &bytes)?;
        self.commits = commits;
        Ok(())
    }
}

fn read(bytes: [u8; LEN]) -> Option<u64> {
    let (number, crc) = bytes.split_first_chunk::<8>()?;
    (crc == crc32c::crc32c(number).to_le_bytes()).then(|| u64::from_le_bytes(*number))
}
