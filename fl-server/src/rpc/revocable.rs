//! A connection that a signal ends: its place was given to another one, or its time is over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// A connection whose reads fail once its signal has completed, also because the other side of the signal was dropped. What is being
/// written meanwhile is written; HTTP closes a connection that it cannot read.
#[derive(Debug)]
pub(crate) struct Revocable<I, T> {
    io: I,
    end: Option<oneshot::Receiver<()>>,
    kind: io::ErrorKind,
    why: &'static str,
    held: T,
}

impl<I, T> Revocable<I, T> {
    /// `kind`, `why`: of the error with which reads fail. `held` is dropped with the connection.
    pub(crate) fn new(io: I, end: oneshot::Receiver<()>, kind: io::ErrorKind, why: &'static str, held: T) -> Self {
        Self {
            io,
            end: Some(end),
            kind,
            why,
            held,
        }
    }

    pub(crate) fn io(&self) -> &I {
        &self.io
    }

    pub(crate) fn held(&self) -> &T {
        &self.held
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(end) = &mut self.end
            && Pin::new(end).poll(cx).is_pending()
        {
            return Ok(());
        }
        self.end = None;
        Err(io::Error::new(self.kind, self.why))
    }
}

impl<I: AsyncRead + Unpin, T: Unpin> AsyncRead for Revocable<I, T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_end(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin, T: Unpin> AsyncWrite for Revocable<I, T> {
    fl_proto::through_io!(write, is_vectored, flush, shutdown);
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_waiting_read_fails_when_the_signal_comes_and_what_is_held_ends_with_the_connection() {
        let ((near, mut far), (end, ended), held) = (tokio::io::duplex(64), oneshot::channel(), Arc::new(()));
        let why = "the place was taken";
        let mut io = Revocable::new(near, ended, ErrorKind::ConnectionAborted, why, Arc::clone(&held));
        far.write_all(b"ask").await.unwrap();
        let mut buf = [0; 3];
        io.read_exact(&mut buf).await.unwrap();
        let reading = tokio::spawn(async move {
            let error = io.read(&mut [0; 3]).await.unwrap_err();
            // Once it has failed, it fails always; what was begun can be written.
            let again = io.read(&mut [0; 3]).await.unwrap_err();
            io.write_all(b"bye").await.unwrap();
            (error, again.kind())
        });
        drop(end);
        let (error, again) = reading.await.unwrap();
        assert_eq!(
            (error.kind(), again),
            (ErrorKind::ConnectionAborted, ErrorKind::ConnectionAborted)
        );
        assert_eq!(error.to_string(), why);
        let mut said = String::new();
        far.read_to_string(&mut said).await.unwrap();
        assert_eq!((said.as_str(), Arc::strong_count(&held)), ("bye", 1));
    }
}
