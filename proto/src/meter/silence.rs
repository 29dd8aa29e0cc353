//! A stream that breaks when it has brought nothing for long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::limits::{DEFAULT_PING_EVERY, MAX_PING_EVERY, PING_TIMEOUT};

/// How long a server may be silent before its client takes the connection for broken. A server pings, so that a client need not: the
/// time between two pings, and the time that an answer may take.
#[derive(Debug, Clone)]
pub struct Silence(Arc<AtomicU64>);

impl Silence {
    /// The limit for a server that pings after `every` without a byte, [`MAX_PING_EVERY`] at most.
    pub fn of_pings(every: Duration) -> Self {
        let silence = Self(Arc::default());
        silence.expect_pings(every);
        silence
    }

    /// Sets the limit, also of connections that are open.
    pub fn expect_pings(&self, every: Duration) {
        let limit = every.min(MAX_PING_EVERY) + PING_TIMEOUT;
        self.0.store(limit.as_millis() as u64, Ordering::Relaxed);
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// The limit until the server has said how often it pings.
impl Default for Silence {
    fn default() -> Self {
        Self::of_pings(DEFAULT_PING_EVERY)
    }
}

/// A stream whose reads fail with `TimedOut` once they have brought nothing for as long as [`Silence`] says.
#[derive(Debug)]
pub(crate) struct Attentive<S> {
    io: S,
    silence: Silence,
    heard: Instant,
    wait: Pin<Box<Sleep>>,
}

impl<S> Attentive<S> {
    pub(crate) fn new(io: S, silence: Silence) -> Self {
        let heard = Instant::now();
        let wait = Box::pin(tokio::time::sleep_until(heard + silence.limit()));
        Self {
            io,
            silence,
            heard,
            wait,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Attentive<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self {
            io,
            silence,
            heard,
            wait,
        } = &mut *self;
        // What has arrived comes first: a device that slept finds the bytes of that time.
        if let Poll::Ready(read) = Pin::new(io).poll_read(cx, buf) {
            *heard = Instant::now();
            return Poll::Ready(read);
        }
        // Bytes or another limit may have come since.
        let limit = silence.limit();
        let until = *heard + limit;
        if wait.deadline() != until {
            wait.as_mut().reset(until);
        }
        ready!(wait.as_mut().poll(cx));
        let why = format!("the server was silent for {} s", limit.as_secs());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Attentive<S> {
    through_io!(write, is_vectored, flush, shutdown);
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_read_fails_when_a_ping_did_not_come_in_its_time() {
        let (a, mut b) = tokio::io::duplex(64);
        let mut a = Attentive::new(a, Silence::of_pings(60 * SECOND));
        tokio::time::sleep(79 * SECOND).await;
        b.write_u8(7).await.unwrap();
        assert_eq!(a.read_u8().await.unwrap(), 7);
        let begun = Instant::now();
        let error = a.read_u8().await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 80));
        assert!(error.to_string().contains("80 s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrived_while_nobody_read_is_read() {
        let (a, mut b) = tokio::io::duplex(64);
        let mut a = Attentive::new(a, Silence::default());
        b.write_u8(7).await.unwrap();
        tokio::time::sleep(3600 * SECOND).await;
        assert_eq!(a.read_u8().await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn another_limit_holds_for_a_connection_that_is_open() {
        for every in [1, 600] {
            let (a, mut b) = tokio::io::duplex(64);
            let silence = Silence::default();
            let mut a = Attentive::new(a, silence.clone());
            b.write_u8(7).await.unwrap();
            a.read_u8().await.unwrap();
            let begun = Instant::now();
            let reading = tokio::spawn(async move { a.read_u8().await });
            tokio::task::yield_now().await;
            silence.expect_pings(every * SECOND);
            // What else the connection does polls the read, such as a message; here only time passes.
            assert!(reading.await.unwrap().is_err());
            let limit = (every * SECOND).max(DEFAULT_PING_EVERY) + PING_TIMEOUT;
            assert_eq!(begun.elapsed().as_secs(), limit.as_secs());
        }
    }
}
