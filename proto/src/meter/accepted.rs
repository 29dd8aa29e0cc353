//! A connection that the server has accepted, and its peer.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::counter::Meter;
use super::linger::Lingering;

/// The peer of a connection; found in the extensions of a request.
#[derive(Debug, Clone)]
pub struct PeerInfo {
    /// The peer's address.
    pub address: SocketAddr,
    /// The connection's meter.
    pub meter: Arc<Meter>,
    /// The certificate whose key the peer proved to hold: one X.509 certificate, DER.
    pub certificate: Arc<[u8]>,
}

/// A metered connection whose client has presented its certificate. [`crate::accept`] makes it.
#[derive(Debug)]
pub struct Accepted {
    io: Box<TlsStream<Lingering<TcpStream>>>,
    info: PeerInfo,
}

impl Accepted {
    pub(crate) fn new(io: TlsStream<Lingering<TcpStream>>, info: PeerInfo) -> Self {
        Self { io: Box::new(io), info }
    }

    /// The peer.
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
