//! Spreads the calls of each caller over time. Pure but for the lock, which guards a table of moments: the time is an argument.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Calls that do not wait after a pause: those of this time.
const BURST: Duration = Duration::from_secs(1);
/// Calls of one caller that count as waiting, at most. A caller that gives up many calls waits no longer than for these.
const WAITING: u32 = 256;
/// Callers in the table before the first look for those that are due nothing.
const PRUNE_AT: usize = 64;

/// Calls per second of each caller.
#[derive(Debug)]
pub(crate) struct CallRate<K> {
    /// Least time between two calls, on average.
    every: Duration,
    table: Mutex<Table<K>>,
}

#[derive(Debug)]
struct Table<K> {
    /// When each caller's calls so far would have ended, one after another. A moment that has passed says nothing.
    paid: BTreeMap<K, Instant>,
    prune_at: usize,
}

impl<K: Ord + Clone> CallRate<K> {
    /// At most `rate` calls of a caller in a second, on average.
    pub(crate) fn new(rate: u32) -> Self {
        Self {
            every: Duration::from_secs(1) / rate.max(1),
            table: Mutex::new(Table {
                paid: BTreeMap::new(),
                prune_at: PRUNE_AT,
            }),
        }
    }

    /// How long a new call of `caller` has to wait.
    pub(crate) fn reserve(&self, caller: &K, now: Instant) -> Duration {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.paid.len() >= table.prune_at {
            table.paid.retain(|_, paid| *paid > now);
            table.prune_at = PRUNE_AT.max(2 * table.paid.len());
        }
        let paid = table.paid.entry(caller.clone()).or_insert(now);
        *paid = ((*paid).max(now) + self.every).min(now + BURST + self.every * WAITING);
        paid.saturating_duration_since(now + BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(rate: &CallRate<&'static str>, who: &'static str, now: Instant, calls: usize) -> Vec<Duration> {
        (0..calls).map(|_| rate.reserve(&who, now)).collect()
    }

    #[test]
    fn a_second_of_calls_is_free_and_the_others_follow_at_the_rate() {
        let (rate, start) = (CallRate::new(10), Instant::now());
        assert_eq!(waits(&rate, "a", start, 10), [Duration::ZERO; 10]);
        let late: Vec<_> = (1..=3).map(|n| Duration::from_millis(100) * n).collect();
        assert_eq!(waits(&rate, "a", start, 3), late);
        assert_eq!(waits(&rate, "b", start, 1), [Duration::ZERO], "another caller");
        // After half a second, five of the calls are paid.
        let later = start + Duration::from_millis(500);
        assert_eq!(waits(&rate, "a", later, 3)[..2], [Duration::ZERO; 2]);
        assert_eq!(rate.reserve(&"a", later + 2 * BURST), Duration::ZERO);
    }

    #[test]
    fn calls_that_were_given_up_delay_later_ones_only_so_far() {
        let (rate, start) = (CallRate::new(10), Instant::now());
        let longest = waits(&rate, "a", start, 100_000).into_iter().max().unwrap();
        assert_eq!(longest, Duration::from_millis(100) * WAITING);
    }

    #[test]
    fn callers_that_are_gone_take_no_memory() {
        let (rate, mut now) = (CallRate::new(100), Instant::now());
        for caller in 0..100_000u32 {
            now += Duration::from_millis(5);
            rate.reserve(&caller, now);
        }
        assert!(rate.table.lock().unwrap().paid.len() <= PRUNE_AT);
    }
}
