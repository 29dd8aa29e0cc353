//! Closing a connection without loss: a side that has finished says so and reads on until the other side has finished too.
//! Otherwise the kernel discards data in flight and answers with a reset, and the byte counts of the two sides differ. The wait
//! is at most [`LINGER`], and the data read meanwhile is discarded.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::counter::Meter;
use super::metered::Metered;

// Longest wait for the other side to finish.
const LINGER: Duration = Duration::from_secs(1);
// Size of the buffer for discarded bytes.
const SCRATCH: usize = 4096;

/// A metered stream whose shutdown completes when the other side has closed as well.
#[derive(Debug)]
pub(crate) struct Lingering<S> {
    io: Metered<S>,
    /// Deadline of the wait, once this side has finished.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(io: S, meter: Arc<Meter>) -> Self {
        Self {
            io: Metered::new(io, meter),
            until: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    through_io!(write, is_vectored, flush);

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, until } = &mut *self;
        if until.is_none() {
            ready!(Pin::new(&mut *io).poll_shutdown(cx))?;
        }
        let until = until.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        loop {
            let mut scratch = [0; SCRATCH];
            let mut heard = ReadBuf::new(&mut scratch);
            match Pin::new(&mut *io).poll_read(cx, &mut heard) {
                Poll::Ready(Ok(())) if !heard.filled().is_empty() => {}
                // End of stream or an error: no more data will come.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return until.as_mut().poll(cx).map(Ok),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn the_side_that_goes_first_hears_and_counts_the_others_last_words() {
        let (a, mut b) = tokio::io::duplex(64);
        let meter = Arc::new(Meter::default());
        let mut a = Lingering::new(a, Arc::clone(&meter));
        let other = async {
            let mut all = Vec::new();
            b.read_to_end(&mut all).await.unwrap();
            b.write_all(&[7; 10_000]).await.unwrap();
            drop(b);
            all
        };
        let own = async {
            a.write_all(b"bye").await.unwrap();
            a.shutdown().await.unwrap();
        };
        let ((), all) = tokio::join!(own, other);
        assert_eq!(
            (all.as_slice(), meter.written(), meter.read()),
            (&b"bye"[..], 3, 10_000)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_never_ends_is_not_waited_for() {
        let (a, b) = tokio::io::duplex(64);
        let mut a = Lingering::new(a, Arc::default());
        let begun = tokio::time::Instant::now();
        a.shutdown().await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), LINGER.as_secs());
        drop(b);
    }
}
