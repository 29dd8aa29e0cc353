//! The least rate of a transfer.
//!
//! Time is a credit: a transfer begins with the timeout as its credit, each byte earns the time that it takes at the
//! least rate, and the credit never exceeds the timeout. So a silent transfer ends after the timeout, and one slower
//! than the least rate some time later.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fl_proto::{CHUNK, Meter};
use tokio::time::{Instant, timeout_at};

use crate::config::server::Tuning;

#[derive(Debug)]
pub(super) struct Pace {
    patience: Duration,
    /// Bytes a second.
    least_rate: u64,
    deadline: Instant,
    /// The connection's bytes in the transfer's direction.
    meter: (Arc<Meter>, fn(&Meter) -> u64),
    /// Its value at the last check.
    seen: u64,
    /// Bytes that the connection may still carry before a whole message has moved: any more earn nothing.
    ahead: u64,
}

/// Bytes that a connection carries for a message, at most: a chunk and its framing.
const AHEAD: u64 = 2 * CHUNK as u64;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooSlow;

impl Pace {
    /// For an upload that begins now.
    pub(super) fn up(tuning: &Tuning, meter: &Arc<Meter>) -> Self {
        Self::new(tuning, meter, Meter::read)
    }

    /// For a download that begins now.
    pub(super) fn down(tuning: &Tuning, meter: &Arc<Meter>) -> Self {
        Self::new(tuning, meter, Meter::written)
    }

    fn new(tuning: &Tuning, meter: &Arc<Meter>, bytes: fn(&Meter) -> u64) -> Self {
        Self {
            patience: tuning.stall,
            least_rate: tuning.least_rate,
            deadline: Instant::now() + tuning.stall,
            seen: bytes(meter),
            meter: (Arc::clone(meter), bytes),
            ahead: AHEAD,
        }
    }

    /// Credits the time that the transfer waited for a permit.
    pub(super) fn excuse(&mut self, waited: Duration) {
        self.deadline += waited;
    }

    /// Waits for the next message, while the connection carries parts of it.
    pub(super) async fn wait<T>(&mut self, moving: impl Future<Output = T>) -> Result<T, TooSlow> {
        let mut moving = pin!(moving);
        loop {
            if let Ok(moved) = timeout_at(self.deadline, &mut moving).await {
                return Ok(moved);
            }
            let (meter, bytes) = &self.meter;
            let now = bytes(meter);
            let carried = now.saturating_sub(self.seen).min(self.ahead);
            self.seen = now;
            self.ahead -= carried;
            self.earn(carried);
            if Instant::now() >= self.deadline {
                return Err(TooSlow);
            }
        }
    }

    /// A message of `bytes` has moved.
    pub(super) fn moved(&mut self, bytes: u64) {
        let (meter, count) = &self.meter;
        self.seen = count(meter);
        // Its first bytes have earned their time already.
        self.earn(bytes.saturating_sub(AHEAD - self.ahead));
        self.ahead = AHEAD;
    }

    fn earn(&mut self, bytes: u64) {
        let time = Duration::from_secs_f64(bytes as f64 / self.least_rate as f64);
        self.deadline = (self.deadline + time).min(Instant::now() + self.patience);
    }
}

#[cfg(test)]
mod tests {
    use fl_proto::Metered;
    use tokio::io::AsyncWriteExt;
    use tokio::time::sleep;

    use super::*;

    fn tuning() -> Tuning {
        Tuning {
            stall: Duration::from_secs(30),
            least_rate: 1_000,
            ..Tuning::default()
        }
    }

    /// Seconds until a transfer ends whose messages of `bytes` arrive every `every` seconds; `None` if it lasts longer
    /// than a thousand messages.
    async fn given_up_after(bytes: u64, every: u64) -> Option<u64> {
        let begun = Instant::now();
        let mut pace = Pace::up(&tuning(), &Arc::default());
        for _ in 0..1_000 {
            if pace.wait(sleep(Duration::from_secs(every))).await.is_err() {
                return Some(begun.elapsed().as_secs());
            }
            pace.moved(bytes);
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_a_trickle_end_a_transfer_and_the_least_rate_does_not() {
        assert_eq!(given_up_after(0, 3_600).await, Some(30));
        assert_eq!(given_up_after(1, 1).await, Some(30));
        assert_eq!(
            given_up_after(500, 1).await,
            Some(59),
            "half the rate lasts twice as long"
        );
        assert_eq!(given_up_after(1_000, 1).await, None);
        assert_eq!(given_up_after(29_000, 29).await, None);
        let burst = given_up_after(1_000_000_000, 31).await;
        assert_eq!(burst, Some(30), "what came fast is not saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_comes_slowly_is_waited_for_and_other_bytes_are_not_taken_for_it() {
        // The connection carries just more than the least rate.
        for (bytes, arrives) in [(CHUNK as u64, true), (u64::MAX, false)] {
            let meter = Arc::new(Meter::default());
            let mut pace = Pace::down(&tuning(), &meter);
            let mut io = Metered::new(tokio::io::sink(), meter);
            let carried = async {
                let mut left = bytes;
                while left > 0 {
                    sleep(Duration::from_secs(1)).await;
                    let now = left.min(1_100);
                    io.write_all(&[0; 1_100][..now as usize]).await.unwrap();
                    left -= now;
                }
            };
            assert_eq!(pace.wait(carried).await.is_ok(), arrives);
        }
    }
}
