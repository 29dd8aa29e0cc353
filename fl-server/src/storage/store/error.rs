//! What the store cannot do, and what to do about it.

use std::path::PathBuf;

use fl_proto::RunName;

use crate::storage::disk::DiskError;
use crate::storage::record::RecordError;
use crate::storage::store::format::{MAJOR, MINOR};

/// The store cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("{} is open in another process; while a server runs, `status`, `report` and `export` ask it; everything else needs it to stop", .0.display())]
    Busy(PathBuf),
    /// A newer program wrote it.
    #[error("{} has format {theirs}; this program reads {MAJOR}.{MINOR}: update it", path.display())]
    Newer {
        /// The folder.
        path: PathBuf,
        /// The format found, `major.minor`.
        theirs: String,
    },
    /// Commits that were durable are gone.
    #[error(
        "the store at {} has only {commits} of its {acknowledged} commits: the disk has damaged or lost some of it. Restore \
         the data folder from a backup. With none, keep a copy of it and remove {}: if what the store still says of the run \
         can be computed from what else is there, it goes on from there",
        path.display(),
        head.display()
    )]
    Lost {
        /// The folder.
        path: PathBuf,
        /// Commits found.
        commits: u64,
        /// Commits that were durable.
        acknowledged: u64,
        /// The file that says so.
        head: PathBuf,
    },
    /// How many commits there were cannot be read.
    #[error(
        "{} is not what was written: the disk has damaged it, and perhaps the store beside it. Restore the data folder from \
         a backup, or remove this file if you trust the store",
        .0.display()
    )]
    Head(PathBuf),
    /// The disk's.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The database's.
    #[error("the store at {} is damaged: {why}. Restore the data folder from a backup", path.display())]
    Broken {
        /// The folder.
        path: PathBuf,
        /// What it said.
        why: String,
    },
    /// A value is not what was written.
    #[error("{table} {number} of run {run}: {why}")]
    Value {
        /// `record`, `ledger row` or `entry`.
        table: &'static str,
        /// Its number, from 0, or its name.
        number: String,
        /// The run.
        run: RunName,
        /// What is wrong, and at which byte.
        why: RecordError,
    },
    /// A record is missing between others.
    #[error("record {number} of run {run} is missing")]
    Gap {
        /// The number that should come next.
        number: u64,
        /// The run.
        run: RunName,
    },
    /// An earlier write failed: what is durable is unknown until the store is opened again.
    #[error("the store at {} has stopped: {why}", path.display())]
    Stopped {
        /// The folder.
        path: PathBuf,
        /// What the failed write said.
        why: String,
    },
}

impl StoreError {
    /// Whether what is stored is not what was stored.
    pub fn is_corruption(&self) -> bool {
        matches!(
            self,
            Self::Value { .. } | Self::Gap { .. } | Self::Broken { .. } | Self::Lost { .. } | Self::Head(_)
        )
    }
}
