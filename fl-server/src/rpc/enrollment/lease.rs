//! A connection of a device that enrolls.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use fl_proto::Accepted;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tonic::transport::server::Connected;

use crate::accounting::edge::Open;

/// A connection that fails when its [`Stay`] ends.
#[derive(Debug)]
pub(super) struct Lease {
    io: Accepted<SocketAddr>,
    /// Completes when the connection has to end; `None` once it has.
    end: Option<oneshot::Receiver<()>>,
    /// Completes for the [`Stay`] when this is dropped.
    _left: oneshot::Sender<()>,
    _open: Open,
}

/// How long a connection lasts: dropping this ends it.
#[derive(Debug)]
pub(super) struct Stay {
    _end: oneshot::Sender<()>,
    left: oneshot::Receiver<()>,
}

impl Lease {
    pub(super) fn new(io: Accepted<SocketAddr>, open: Open) -> (Self, Stay) {
        let ((end, ended), (leaving, left)) = (oneshot::channel(), oneshot::channel());
        let lease = Self {
            io,
            end: Some(ended),
            _left: leaving,
            _open: open,
        };
        (lease, Stay { _end: end, left })
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(end) = &mut self.end
            && Pin::new(end).poll(cx).is_pending()
        {
            return Ok(());
        }
        self.end = None;
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "enrollment took too long, or another device took the place",
        ))
    }
}

impl Stay {
    /// Completes when the connection has ended by itself.
    pub(super) async fn left(&mut self) {
        let _ = (&mut self.left).await;
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
        self.poll_end(cx)?;
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
