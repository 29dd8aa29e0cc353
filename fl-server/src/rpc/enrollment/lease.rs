//! A connection of a device that enrolls: it has one of few places, for a short time.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use fl_proto::Accepted;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;

/// Connections at once, in total and of one address.
const PLACES: usize = 64;
const PER_ADDRESS: usize = 16;
/// How long a connection lasts. A device makes one call.
const LIFETIME: Duration = Duration::from_secs(20);

/// The places of the enrollment port. The lock guards counters and is never held across an await.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<BTreeMap<IpAddr, usize>>);

/// A place; free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    /// A place for a connection from `address`; `None` if there is none.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.get(&address).copied().unwrap_or(0);
        if own >= PER_ADDRESS || taken.values().sum::<usize>() >= PLACES {
            return None;
        }
        *taken.entry(address).or_default() += 1;
        let places = Arc::clone(self);
        Some(Place { places, address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// A connection with its place, which ends after [`LIFETIME`].
#[derive(Debug)]
pub(super) struct Lease {
    io: Accepted<SocketAddr>,
    end: Pin<Box<Sleep>>,
    _place: Place,
}

impl Lease {
    pub(super) fn new(io: Accepted<SocketAddr>, place: Place, began: Instant) -> Self {
        Self {
            io,
            end: Box::pin(tokio::time::sleep_until(began + LIFETIME)),
            _place: place,
        }
    }
}

impl Connected for Lease {
    type ConnectInfo = SocketAddr;

    fn connect_info(&self) -> SocketAddr {
        *self.io.info()
    }
}

impl AsyncRead for Lease {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "enrollment took too long")));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Lease {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_total_and_by_address() {
        let places = Arc::new(Places::default());
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut own: Vec<_> = (0..PER_ADDRESS).map(|_| places.take(address(1)).unwrap()).collect();
        assert!(places.take(address(1)).is_none());
        let others: Vec<_> = (2..250).map_while(|n| places.take(address(n))).collect();
        assert_eq!(own.len() + others.len(), PLACES);
        own.pop();
        assert!(places.take(address(1)).is_some());
        drop((own, others));
        assert!(places.0.lock().unwrap().is_empty());
    }
}
