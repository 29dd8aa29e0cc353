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
    /// What the peer showed, DER: the X.509 certificate whose key it proved to hold, then those of authorities between.
    pub chain: Arc<[Vec<u8>]>,
}

/// A metered connection after its TLS handshake. With [`PeerInfo`], whose client has presented its certificate
/// ([`crate::accept`]); with an address alone, a device that has no certificate yet ([`crate::accept_uncertified`]).
#[derive(Debug)]
pub struct Accepted<I = PeerInfo> {
    io: Box<TlsStream<Lingering<TcpStream>>>,
    info: I,
}

impl<I> Accepted<I> {
    pub(crate) fn new(io: TlsStream<Lingering<TcpStream>>, info: I) -> Self {
        Self { io: Box::new(io), info }
    }

    /// The peer.
    pub fn info(&self) -> &I {
        &self.info
    }
}

impl<I: Clone + Send + Sync + 'static> Connected for Accepted<I> {
    type ConnectInfo = I;

    fn connect_info(&self) -> I {
        self.info.clone()
    }
}

impl<I: Unpin> AsyncRead for Accepted<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: Unpin> AsyncWrite for Accepted<I> {
    through_io!(write, is_vectored, flush, shutdown);
}
