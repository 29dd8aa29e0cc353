//! Bounds on concurrent transfers and verifications.

use std::time::Duration;

use fl_compress::Layout;
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::Status;

use crate::config::server::Tuning;
use crate::rpc::buffers::Buffers;
use crate::rpc::probes::Probes;
use crate::storage::blobs::LONGEST;

#[derive(Debug)]
pub(crate) struct Limits {
    /// Largest frame accepted, in bytes.
    pub(super) max_frame: u64,
    pub(super) uploads: Transfers,
    pub(super) downloads: Transfers,
    /// One permit for each frame being verified.
    pub(super) verifications: Semaphore,
    pub(super) buffers: Buffers,
    pub(super) probes: Probes,
}

/// Transfers up to this size have permits of their own, so that they do not wait for larger ones.
const SMALL: u64 = 64 * 1024;
/// Concurrent small transfers in one direction, at most: each has a file open.
pub(crate) const SMALL_AT_ONCE: usize = 64;

/// An upload up to this size is held in memory while its chunks arrive one after another, which spares it a file. The places bound
/// how many are: with the defaults they hold 12 MiB at most.
pub(super) const MAX_HELD: u64 = LONGEST;
/// An upload is held for at most this long: a killed server has lost no more of it.
pub(super) const HELD_FOR: Duration = Duration::from_secs(2);

/// Chunks of an upload in a file are written together once they have so many bytes: each write is a task on another thread.
pub(super) const WRITTEN_AT_ONCE: u64 = 256 * 1024;
/// Chunks of an upload in a file are written with the next one once the first is so old.
pub(super) const UNWRITTEN_FOR: Duration = Duration::from_millis(200);

/// A transfer that is idle for this long releases its permit, and acquires one again when bytes arrive.
pub(super) const LAPSE: Duration = Duration::from_secs(1);

/// Places for the transfers in one direction. A client has at most one of them, see [`crate::rpc::turns`], and only
/// while there is something to move.
#[derive(Debug)]
pub(super) struct Transfers {
    large: Semaphore,
    small: Semaphore,
}

impl Transfers {
    fn new(large: usize) -> Self {
        Self {
            large: Semaphore::new(large),
            small: Semaphore::new(SMALL_AT_ONCE),
        }
    }

    pub(super) async fn place(&self, bytes: u64) -> Result<SemaphorePermit<'_>, Status> {
        let places = if bytes > SMALL { &self.large } else { &self.small };
        places
            .acquire()
            .await
            .map_err(|_| Status::unavailable("the server is stopping; retry later"))
    }
}

impl Limits {
    pub(crate) fn new(layout: &Layout, tuning: &Tuning) -> Self {
        Self {
            max_frame: fl_proto::max_frame(layout.len(), layout.tensors().len()),
            uploads: Transfers::new(tuning.transfers_at_once),
            downloads: Transfers::new(tuning.transfers_at_once),
            verifications: Semaphore::new(tuning.verify_at_once),
            buffers: Buffers::default(),
            probes: Probes::default(),
        }
    }
}
