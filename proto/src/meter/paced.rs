//! A stream that keeps to a rate in each direction.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::pace::Pace;

/// The rates of a client's connections; `None` for no limit.
#[derive(Debug, Clone, Default)]
pub struct Paces {
    /// Of the bytes that the client sends.
    pub up: Option<Arc<Pace>>,
    /// Of the bytes that it receives.
    pub down: Option<Arc<Pace>>,
}

/// A stream whose reads and writes keep to [`Paces`]. Under TLS: the rates count what is on the socket.
#[derive(Debug)]
pub(crate) struct PacedStream<S> {
    io: S,
    write: Direction,
    read: Direction,
}

/// The rate of one direction, and the wait for it.
#[derive(Debug)]
struct Direction {
    pace: Option<Arc<Pace>>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Direction {
    fn new(pace: Option<Arc<Pace>>) -> Self {
        Self { pace, wait: None }
    }

    /// How many of `wanted` bytes may pass, once some may.
    fn poll_allowed(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<usize> {
        let Some(pace) = &self.pace else {
            return Poll::Ready(wanted);
        };
        loop {
            if let Some(wait) = &mut self.wait {
                // A write that has become shorter, such as a ping alone, may pass now.
                let is_over = wait.as_mut().poll(cx).is_ready();
                if is_over {
                    self.wait = None;
                }
            }
            match pace.allows(wanted as u64, Instant::now()) {
                Ok(allowed) => {
                    self.wait = None;
                    return Poll::Ready(usize::try_from(allowed).unwrap_or(wanted));
                }
                Err(_) if self.wait.is_some() => return Poll::Pending,
                Err(at) => self.wait = Some(Box::pin(tokio::time::sleep_until(at))),
            }
        }
    }

    fn passed(&self, bytes: usize) {
        if let Some(pace) = &self.pace {
            pace.passed(bytes as u64, Instant::now());
        }
    }
}

impl<S> PacedStream<S> {
    pub(crate) fn new(io: S, paces: Paces) -> Self {
        Self {
            io,
            write: Direction::new(paces.up),
            read: Direction::new(paces.down),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let Self { io, read, .. } = &mut *self;
        if read.pace.is_none() {
            return Pin::new(io).poll_read(cx, buf);
        }
        let allowed = ready!(read.poll_allowed(cx, buf.remaining()));
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(allowed.min(buf.remaining())));
        ready!(Pin::new(io).poll_read(cx, &mut part))?;
        let filled = part.filled().len();
        buf.advance(filled);
        read.passed(filled);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    through_io!(is_vectored, flush, shutdown);

    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let Self { io, write, .. } = &mut *self;
        if buf.is_empty() {
            return Pin::new(io).poll_write(cx, buf);
        }
        let allowed = ready!(write.poll_allowed(cx, buf.len()));
        let written = ready!(Pin::new(io).poll_write(cx, &buf[..allowed.min(buf.len())]))?;
        write.passed(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        if self.write.pace.is_none() {
            return Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        }
        let first = bufs.iter().find(|buf| !buf.is_empty());
        self.poll_write(cx, first.map_or(&[], |buf| buf))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const RATE: u64 = 125_000;

    fn paces() -> (Paces, Paces) {
        let pace = || Some(Arc::new(Pace::new(RATE)));
        let (up, down) = (pace(), pace());
        (Paces { up, down: None }, Paces { up: None, down })
    }

    /// Bytes by second, and the whole time, of a transfer through a stream with these rates.
    async fn transfer(paces: Paces, is_written: bool) -> (Vec<u64>, Duration) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let near = PacedStream::new(near, paces);
        let (mut from, mut to): (Box<dyn AsyncWrite + Unpin + Send>, Box<dyn AsyncRead + Unpin + Send>) = if is_written
        {
            (Box::new(near), Box::new(far))
        } else {
            (Box::new(far), Box::new(near))
        };
        let begin = Instant::now();
        let sending = tokio::spawn(async move {
            from.write_all(&vec![7; 10 * RATE as usize]).await.unwrap();
            from.shutdown().await.unwrap();
        });
        let (mut seconds, mut buffer) = (vec![0u64; 12], vec![0; 16 * 1024]);
        loop {
            let read = to.read(&mut buffer).await.unwrap();
            if read == 0 {
                break;
            }
            assert!(buffer[..read].iter().all(|byte| *byte == 7));
            seconds[begin.elapsed().as_secs() as usize] += read as u64;
        }
        sending.await.unwrap();
        (seconds, begin.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn both_directions_keep_to_their_rate() {
        let (up, down) = paces();
        for (paces, is_written) in [(up, true), (down, false)] {
            let (seconds, time) = transfer(paces, is_written).await;
            assert!((time.as_secs_f64() / 10.0 - 1.0).abs() < 0.03, "{time:?}");
            assert!(seconds.iter().all(|bytes| *bytes <= 2 * RATE), "{seconds:?}");
            assert_eq!(seconds.iter().sum::<u64>(), 10 * RATE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_other_direction_and_short_writes_do_not_wait() {
        let (up, _) = paces();
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let mut near = PacedStream::new(near, up);
        let begin = Instant::now();
        far.write_all(&[1; 60_000]).await.unwrap();
        near.read_exact(&mut [0; 60_000]).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO);
        near.write_all(&[2; 20_000]).await.unwrap();
        let full = Instant::now();
        near.write_all(&[3; 39]).await.unwrap();
        assert_eq!(full.elapsed(), Duration::ZERO, "a ping passes in debt");
    }
}
