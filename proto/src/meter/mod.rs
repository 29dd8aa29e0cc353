//! Bytes on the socket, counted under TLS: what the ledger must equal. Never changes what passes.

mod linger;
mod records;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

pub(crate) use linger::Lingering;
use records::Records;

/// Bytes read from and written to one connection, or to all of an endpoint's.
#[derive(Debug, Default)]
pub struct Meter {
    read: AtomicU64,
    written: AtomicU64,
    pings_read: AtomicU64,
    pings_written: AtomicU64,
    open: AtomicU64,
    closed: Notify,
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

    /// Bytes read so far in TLS records that have the size of a lone HTTP/2 PING, whole records only. Read this before
    /// [`Meter::read`], and it is never more. The GOAWAY with which a client says goodbye has that size too.
    pub fn pings_read(&self) -> u64 {
        self.pings_read.load(Ordering::Acquire)
    }

    /// The same of what was written.
    pub fn pings_written(&self) -> u64 {
        self.pings_written.load(Ordering::Acquire)
    }

    /// Streams that count into this meter now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Waits until no stream counts into this meter any more: its counts are final, unless another one is opened.
    pub async fn closed(&self) {
        loop {
            let closed = self.closed.notified();
            if self.open() == 0 {
                break;
            }
            closed.await;
        }
    }

    fn opens(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
        if let Some(total) = &self.total {
            total.opens();
        }
    }

    fn closes(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.closed.notify_waiters();
        if let Some(total) = &self.total {
            total.closes();
        }
    }

    fn add_read(&self, bytes: u64, pings: u64) {
        self.read.fetch_add(bytes, Ordering::AcqRel);
        if pings > 0 {
            self.pings_read.fetch_add(pings, Ordering::AcqRel);
        }
        if let Some(total) = &self.total {
            total.add_read(bytes, pings);
        }
    }

    fn add_written(&self, bytes: u64, pings: u64) {
        self.written.fetch_add(bytes, Ordering::AcqRel);
        if pings > 0 {
            self.pings_written.fetch_add(pings, Ordering::AcqRel);
        }
        if let Some(total) = &self.total {
            total.add_written(bytes, pings);
        }
    }
}

/// A stream that counts what passes.
#[derive(Debug)]
pub struct Metered<S> {
    io: S,
    meter: Arc<Meter>,
    reading: Records,
    writing: Records,
}

impl<S> Metered<S> {
    /// Counts `io` into `meter`.
    pub fn new(io: S, meter: Arc<Meter>) -> Self {
        meter.opens();
        Self {
            io,
            meter,
            reading: Records::default(),
            writing: Records::default(),
        }
    }
}

impl<S> Drop for Metered<S> {
    fn drop(&mut self) {
        self.meter.closes();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        let pings = self.reading.pass(read);
        self.meter.add_read(read.len() as u64, pings);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, buf))?;
        let pings = self.writing.pass(&buf[..written]);
        self.meter.add_written(written as u64, pings);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, bufs))?;
        let (mut left, mut pings) = (written, 0);
        for buf in bufs {
            let taken = left.min(buf.len());
            pings += self.writing.pass(&buf[..taken]);
            left -= taken;
        }
        self.meter.add_written(written as u64, pings);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// What the server knows of a connection below TLS; found in a request's extensions.
#[derive(Debug, Clone)]
pub struct PeerInfo {
    /// The peer's address.
    pub address: SocketAddr,
    /// The connection's meter.
    pub meter: Arc<Meter>,
    /// The certificate that the peer proved to hold: one X.509 certificate, DER.
    pub certificate: Arc<[u8]>,
}

/// A metered connection of a client that has shown its certificate: what [`crate::accept`] makes.
#[derive(Debug)]
pub struct Accepted {
    io: Box<TlsStream<Lingering<TcpStream>>>,
    info: PeerInfo,
}

impl Accepted {
    pub(crate) fn new(io: TlsStream<Lingering<TcpStream>>, info: PeerInfo) -> Self {
        Self { io: Box::new(io), info }
    }

    /// What is known of the peer.
    pub fn info(&self) -> &PeerInfo {
        &self.info
    }
}

impl Connected for Accepted {
    type ConnectInfo = PeerInfo;

    fn connect_info(&self) -> PeerInfo {
        self.info.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
