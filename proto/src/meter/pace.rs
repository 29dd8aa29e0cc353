//! A token bucket: how many bytes may pass now, so that a mean rate is kept without long bursts.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

// How long a full bucket lasts at the mean rate. In any second, at most 1.1 times the mean passes, and what may pass in
// debt.
const BURST: Duration = Duration::from_millis(100);
// Least bytes that are waited for, if so many are to be passed: a trickle of short packets would cost more in headers.
// Of 20 ms, and within these bounds.
const LEAST: (u64, u64) = (256, 16 * 1024);
// A write of at most so many bytes passes at once, in debt: an HTTP/2 ping waits for nobody.
const SMALL: u64 = 128;
// Longest debt.
const DEBT: Duration = Duration::from_millis(400);
const NANOS: u128 = 1_000_000_000;

/// The rate of one direction of a client's connections, in bytes a second. The bucket is empty at first.
#[derive(Debug)]
pub struct Pace {
    rate: u64,
    /// When the bytes that have passed are paid for.
    paid: Mutex<Option<Instant>>,
}

impl Pace {
    /// Lowest rate: 64 kbit/s. Below, the bytes that one side buffers would hold up an HTTP/2 ping for longer than the other side
    /// waits for its answer.
    pub const LEAST_RATE: u64 = 8_000;

    /// A rate in bytes a second, at least [`Pace::LEAST_RATE`].
    pub fn new(rate: u64) -> Self {
        Self {
            rate: rate.max(Self::LEAST_RATE),
            paid: Mutex::default(),
        }
    }

    /// Bytes a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// How many of `wanted` bytes may pass at `now`, or when to ask again.
    pub(super) fn allows(&self, wanted: u64, now: Instant) -> Result<u64, Instant> {
        let paid = *self.paid().get_or_insert(now);
        let credit = self.bytes(now.saturating_duration_since(paid).min(BURST));
        let debt = paid.saturating_duration_since(now);
        if wanted <= SMALL && debt < DEBT {
            return Ok(wanted);
        }
        let least = wanted.min((self.rate / 50).clamp(LEAST.0, LEAST.1));
        if credit >= least {
            Ok(credit.min(wanted))
        } else {
            Err(paid + self.time(least))
        }
    }

    /// `bytes` have passed at `now`.
    pub(super) fn passed(&self, bytes: u64, now: Instant) {
        let mut paid = self.paid();
        let from = paid.map_or(now, |paid| paid.max(now.checked_sub(BURST).unwrap_or(now)));
        *paid = Some(from + self.time(bytes));
    }

    fn time(&self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * NANOS).div_ceil(u128::from(self.rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn bytes(&self, time: Duration) -> u64 {
        u64::try_from(time.as_nanos() * u128::from(self.rate) / NANOS).unwrap_or(u64::MAX)
    }

    fn paid(&self) -> MutexGuard<'_, Option<Instant>> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Passes writes of these lengths as fast as allowed, each after a pause; returns when and how much passed.
    fn passes(pace: &Pace, writes: &[(u64, u64)]) -> Vec<(Duration, u64)> {
        let begin = Instant::now();
        let (mut now, mut passed) = (begin, Vec::new());
        for (pause, len) in writes {
            now += Duration::from_millis(*pause);
            let mut left = *len;
            while left > 0 {
                match pace.allows(left, now) {
                    Ok(bytes) => {
                        assert!(bytes > 0 && bytes <= left);
                        pace.passed(bytes, now);
                        passed.push((now - begin, bytes));
                        left -= bytes;
                    }
                    Err(at) => {
                        assert!(at > now, "it would ask at once again");
                        now = at;
                    }
                }
            }
        }
        passed
    }

    #[test]
    fn a_long_upload_has_the_mean_rate() {
        for rate in [8_000, 125_000, 12_500_000] {
            let passed = passes(&Pace::new(rate), &[(0, 20 * rate)]);
            let (end, _) = passed.last().unwrap();
            let mean = (20 * rate) as f64 / end.as_secs_f64();
            assert!((mean / rate as f64 - 1.0).abs() < 0.01, "{mean} of {rate}");
        }
    }

    #[test]
    fn a_ping_passes_while_a_long_write_waits() {
        let (pace, now) = (Pace::new(125_000), Instant::now());
        assert!(pace.allows(16_384, now).is_err());
        assert_eq!(pace.allows(39, now), Ok(39));
        pace.passed(39, now);
        let at = pace.allows(16_384, now).unwrap_err();
        assert!(at - now < Duration::from_millis(25), "its bytes are paid for later");
        assert_eq!(Pace::new(0).rate(), Pace::LEAST_RATE);
    }

    proptest! {
        #[test]
        fn no_second_has_more_than_twice_the_mean(
            rate in 8_000u64..10_000_000,
            writes in proptest::collection::vec((0u64..3_000, prop_oneof![1u64..200, 1u64..70_000]), 1..60),
        ) {
            let passed = passes(&Pace::new(rate), &writes);
            for (i, (from, _)) in passed.iter().enumerate() {
                let within = passed[i..].iter().take_while(|(at, _)| *at < *from + SECOND);
                let bytes: u64 = within.map(|(_, bytes)| bytes).sum();
                prop_assert!(bytes <= 2 * rate, "{} of {}", bytes, rate);
            }
        }
    }
}
