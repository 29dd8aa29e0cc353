//! Connections that the admin address holds at once, at most: whoever opens more than that takes nothing from the clients.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Lets so many connections in, and closes what comes beyond at once.
#[derive(Debug, Clone)]
pub(super) struct Limit(Arc<Semaphore>);

impl Limit {
    pub(super) fn new(connections: usize) -> Self {
        Self(Arc::new(Semaphore::new(connections)))
    }
}

impl<I, S> Accept<I, S> for Limit {
    type Stream = Held<I>;
    type Service = S;
    type Future = std::future::Ready<io::Result<(Held<I>, S)>>;

    fn accept(&self, io: I, service: S) -> Self::Future {
        let permit = Arc::clone(&self.0).try_acquire_owned();
        let full = |_| {
            io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "too many connections to the admin page",
            )
        };
        std::future::ready(permit.map_err(full).map(|permit| {
            let held = Held { io, _permit: permit };
            (held, service)
        }))
    }
}

/// A connection and its place.
#[derive(Debug)]
pub(super) struct Held<I> {
    io: I,
    _permit: OwnedSemaphorePermit,
}

impl<I: AsyncRead + Unpin> AsyncRead for Held<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Held<I> {
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
