//! Errors of the store.

use std::path::PathBuf;

use fl_proto::RunName;

use crate::storage::disk::DiskError;
use crate::storage::record::RecordError;
use crate::storage::store::format::{MAJOR, MINOR};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} is open in another process; while a server runs, `status`, `report` and `export` ask it; everything else needs it to stop", .0.display())]
    Busy(PathBuf),
    #[error(
        "{} has format {theirs}; this program reads {MAJOR}.{MINOR}: use the program that wrote it, or name another `data` folder \
         in server.toml",
        path.display()
    )]
    Version {
        path: PathBuf,
        /// The format found, `major.minor`.
        theirs: String,
    },
    #[error(
        "the store at {} has only {commits} of its {acknowledged} commits: the disk damaged or lost part of it. Restore the \
         data folder from a backup. Without a backup, copy the data folder, then remove {}: the run continues from what the \
         store still has, if its model can be computed from the blobs that are left",
        path.display(),
        head.display()
    )]
    Lost {
        path: PathBuf,
        commits: u64,
        acknowledged: u64,
        /// The file with the number of durable commits.
        head: PathBuf,
    },
    #[error(
        "{}: bad checksum; the disk damaged this file and possibly the store. Restore the data folder from a backup, or remove \
         this file if you trust the store",
        .0.display()
    )]
    Head(PathBuf),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the store at {} is damaged: {why}. Restore the data folder from a backup", path.display())]
    Broken { path: PathBuf, why: String },
    #[error("{table} {number} of run {run}: {why}")]
    Value {
        /// `record`, `ledger row` or `entry`.
        table: &'static str,
        /// Its number from 0, or its name.
        number: String,
        run: RunName,
        why: RecordError,
    },
    #[error("{table} `{name}` in the store: {why}; restore the data folder from a backup")]
    Entry {
        /// `token` or `client`.
        table: &'static str,
        name: String,
        why: String,
    },
    #[error("record {number} of run {run} is missing")]
    Gap { number: u64, run: RunName },
    /// An earlier write failed: the store does not know what is durable until it is opened again.
    #[error("the store at {} refuses writes after an error: {why}", path.display())]
    Stopped { path: PathBuf, why: String },
}

impl StoreError {
    pub fn is_corruption(&self) -> bool {
        matches!(
            self,
            Self::Value { .. }
                | Self::Entry { .. }
                | Self::Gap { .. }
                | Self::Broken { .. }
                | Self::Lost { .. }
                | Self::Head(_)
        )
    }
}
