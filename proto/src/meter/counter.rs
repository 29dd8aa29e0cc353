//! Counts of bytes, of one connection or of many.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::arrivals::Arrivals;

/// Bytes read from and written to one connection, or to all of an endpoint's.
#[derive(Debug, Default)]
pub struct Meter {
    read: AtomicU64,
    written: AtomicU64,
    pings_read: AtomicU64,
    pings_written: AtomicU64,
    open: AtomicU64,
    closed: Notify,
    arrivals: Mutex<Arrivals>,
    total: Option<Arc<Meter>>,
}

impl Meter {
    /// A meter that also counts into `total`.
    pub fn within(total: Arc<Meter>) -> Self {
        Self {
            total: Some(total),
            ..Self::default()
        }
    }

    /// Bytes read so far.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Acquire)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Bytes read in TLS records of the size of a lone HTTP/2 PING, whole records only. Read before [`Meter::read`], this count
    /// is never the larger one. The GOAWAY that ends a connection has that size too.
    pub fn pings_read(&self) -> u64 {
        self.pings_read.load(Ordering::Acquire)
    }

    /// The same count for bytes written.
    pub fn pings_written(&self) -> u64 {
        self.pings_written.load(Ordering::Acquire)
    }

    /// The first read after which the count of [`Meter::read`] was above `count`: the count then, and when. Of the streams that
    /// count into this meter itself; `None` if that read is not one of the latest.
    pub fn read_after(&self, count: u64) -> Option<(u64, Instant)> {
        self.arrivals().after(count)
    }

    /// The latest read, as of [`Meter::read_after`].
    pub fn last_read(&self) -> Option<(u64, Instant)> {
        self.arrivals().last()
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes when the bytes counted last were read.
    pub(super) fn note_read(&self) {
        self.arrivals().add(self.read(), Instant::now());
    }

    /// Open streams that count into this meter.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Waits until no stream counts into this meter. The counts are final then, unless another stream opens.
    pub async fn closed(&self) {
        loop {
            let closed = self.closed.notified();
            if self.open() == 0 {
                break;
            }
            closed.await;
        }
    }

    pub(super) fn opens(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
        if let Some(total) = &self.total {
            total.opens();
        }
    }

    pub(super) fn closes(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.closed.notify_waiters();
        if let Some(total) = &self.total {
            total.closes();
        }
    }

    pub(super) fn add_read(&self, bytes: u64, pings: u64) {
        self.read.fetch_add(bytes, Ordering::AcqRel);
        if pings > 0 {
            self.pings_read.fetch_add(pings, Ordering::AcqRel);
        }
        if let Some(total) = &self.total {
            total.add_read(bytes, pings);
        }
    }

    pub(super) fn add_written(&self, bytes: u64, pings: u64) {
        self.written.fetch_add(bytes, Ordering::AcqRel);
        if pings > 0 {
            self.pings_written.fetch_add(pings, Ordering::AcqRel);
        }
        if let Some(total) = &self.total {
            total.add_written(bytes, pings);
        }
    }
}
