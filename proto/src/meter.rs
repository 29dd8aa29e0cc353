//! Bytes on the socket, counted under TLS: what the ledger must equal.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::server::Connected;

/// Bytes read from and written to one connection, or to all of an endpoint's.
#[derive(Debug, Default)]
pub struct Meter {
    read: AtomicU64,
    written: AtomicU64,
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

    fn add_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::AcqRel);
        if let Some(total) = &self.total {
            total.add_read(bytes);
        }
    }

    fn add_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::AcqRel);
        if let Some(total) = &self.total {
            total.add_written(bytes);
        }
    }
}

/// A stream that counts what passes.
#[derive(Debug)]
pub struct Metered<S> {
    io: S,
    meter: Arc<Meter>,
}

impl<S> Metered<S> {
    /// Counts `io` into `meter`.
    pub fn new(io: S, meter: Arc<Meter>) -> Self {
        Self { io, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        self.meter.add_read((buf.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, buf))?;
        self.meter.add_written(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, bufs))?;
        self.meter.add_written(written as u64);
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
}

/// A metered connection that the server accepted.
#[derive(Debug)]
pub struct Accepted {
    io: Metered<TcpStream>,
    info: PeerInfo,
}

impl Accepted {
    pub(crate) fn new(io: TcpStream, info: PeerInfo) -> Self {
        Self {
            io: Metered::new(io, Arc::clone(&info.meter)),
            info,
        }
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
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn both_ends_count_the_same_bytes_and_the_total_sums_connections() {
        let total = Arc::new(Meter::default());
        for round in 1..=2u64 {
            let (a, b) = tokio::io::duplex(64);
            let (ours, theirs) = (Arc::new(Meter::within(Arc::clone(&total))), Arc::new(Meter::default()));
            let (mut a, mut b) = (Metered::new(a, Arc::clone(&ours)), Metered::new(b, Arc::clone(&theirs)));
            let send = async {
                a.write_all(&[7; 1000]).await.unwrap();
                a.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let (_, read) = tokio::join!(send, b.read_to_end(&mut received));
            assert_eq!(read.unwrap(), 1000);
            assert_eq!((ours.written(), theirs.read()), (1000, 1000));
            assert_eq!((total.written(), total.read()), (1000 * round, 0));
        }
    }
}
