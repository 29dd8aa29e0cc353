//! A stream that counts the bytes that pass.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counter::Meter;
use super::records::Records;

/// A stream that counts the bytes that pass into a [`Meter`].
#[derive(Debug)]
pub struct Metered<S> {
    io: S,
    meter: Arc<Meter>,
    reading: Records,
    writing: Records,
}

impl<S> Metered<S> {
    /// Counts the bytes of `io` into `meter`.
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
        self.meter.note_read();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    through_io!(is_vectored, flush, shutdown);

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
        let mut left = written;
        let mut pings = 0;
        for buf in bufs {
            let taken = left.min(buf.len());
            pings += self.writing.pass(&buf[..taken]);
            left -= taken;
        }
        self.meter.add_written(written as u64, pings);
        Poll::Ready(Ok(written))
    }
}
