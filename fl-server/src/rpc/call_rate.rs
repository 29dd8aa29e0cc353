//! Spreads the calls of each caller over time. Pure but for the lock, which guards a table of moments: the time is an argument.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// Calls that do not wait after a pause: those of this time.
const BURST: Duration = Duration::from_secs(1);
/// Calls of one caller that count as waiting, at most: none waits for longer than these take.
const WAITING: u32 = 256;
/// Callers in the table before the first look for those that are due nothing.
const PRUNE_AT: usize = 64;

/// Calls per second of each caller.
#[derive(Debug)]
pub(crate) struct CallRate<K>(Mutex<Table<K>>);

#[derive(Debug)]
struct Table<K> {
    /// When each caller's calls so far would have ended, one after another. A moment that has passed says nothing.
    paid: BTreeMap<K, Instant>,
    prune_at: usize,
}

impl<K> Default for CallRate<K> {
    fn default() -> Self {
        Self(Mutex::new(Table {
            paid: BTreeMap::new(),
            prune_at: PRUNE_AT,
        }))
    }
}

impl<K: Ord + Clone> CallRate<K> {
    /// How long a new call of `caller` has to wait, at `rate` calls of a caller in a second on average, and how much longer the ones
    /// after it do.
    fn reserve(&self, caller: &K, rate: u32, now: Instant) -> (Duration, Duration) {
        let every = Duration::from_secs(1) / rate.max(1);
        let mut table = lock(&self.0);
        if table.paid.len() >= table.prune_at {
            table.paid.retain(|_, paid| *paid > now);
            table.prune_at = PRUNE_AT.max(2 * table.paid.len());
        }
        let paid = table.paid.entry(caller.clone()).or_insert(now);
        let begins = (*paid).max(now);
        *paid = (begins + every).min(now + BURST + every * WAITING);
        let wait = paid.saturating_duration_since(now + BURST);
        (wait, paid.saturating_duration_since(begins))
    }

    /// Takes back what a call of `caller` has reserved that was given up.
    fn give_back(&self, caller: &K, reserved: Duration) {
        let mut table = lock(&self.0);
        if let Some(paid) = table.paid.get_mut(caller) {
            *paid = paid.checked_sub(reserved).unwrap_or(*paid);
        }
    }

    /// Counts a call that does not wait: later ones do.
    pub(crate) fn count(&self, caller: &K, rate: u32) {
        self.reserve(caller, rate, Instant::now());
    }

    /// Waits for the turn of a new call. A caller that gives up meanwhile takes no turn from the others.
    /// `waits`: called if the call has to wait.
    pub(crate) async fn turn(&self, caller: K, rate: u32, waits: impl FnOnce()) {
        let (wait, reserved) = self.reserve(&caller, rate, Instant::now());
        if !wait.is_zero() {
            waits();
            let mut reservation = Reservation {
                of: self,
                caller,
                reserved,
            };
            tokio::time::sleep(wait).await;
            reservation.reserved = Duration::ZERO;
        }
    }
}

/// The turn of a call that waits for it.
struct Reservation<'a, K: Ord + Clone> {
    of: &'a CallRate<K>,
    caller: K,
    /// What is given back if the call is given up.
    reserved: Duration,
}

impl<K: Ord + Clone> Drop for Reservation<'_, K> {
    fn drop(&mut self) {
        self.of.give_back(&self.caller, self.reserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(rate: &CallRate<&'static str>, who: &'static str, now: Instant, calls: usize) -> Vec<Duration> {
        (0..calls).map(|_| rate.reserve(&who, 10, now).0).collect()
    }

    #[test]
    fn a_second_of_calls_is_free_and_the_others_follow_at_the_rate() {
        let (rate, start) = (CallRate::default(), Instant::now());
        assert_eq!(waits(&rate, "a", start, 10), [Duration::ZERO; 10]);
        let late: Vec<_> = (1..=3).map(|n| Duration::from_millis(100) * n).collect();
        assert_eq!(waits(&rate, "a", start, 3), late);
        assert_eq!(waits(&rate, "b", start, 1), [Duration::ZERO], "another caller");
        // After half a second, five of the calls are paid.
        let later = start + Duration::from_millis(500);
        assert_eq!(waits(&rate, "a", later, 3)[..2], [Duration::ZERO; 2]);
        assert_eq!(rate.reserve(&"a", 10, later + 2 * BURST).0, Duration::ZERO);
    }

    #[test]
    fn calls_that_were_given_up_delay_later_ones_only_so_far() {
        let (rate, start) = (CallRate::default(), Instant::now());
        let longest = waits(&rate, "a", start, 100_000).into_iter().max().unwrap();
        assert_eq!(longest, Duration::from_millis(100) * WAITING);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_takes_no_turn_from_the_next_one() {
        let rate = CallRate::default();
        for _ in 0..10 {
            rate.turn("a", 10, || panic!("waits")).await;
        }
        for _ in 0..100 {
            let given_up = tokio::time::timeout(Duration::ZERO, rate.turn("a", 10, || ()));
            assert!(given_up.await.is_err());
        }
        let begun = Instant::now();
        rate.turn("a", 10, || ()).await;
        assert!(begun.elapsed() <= Duration::from_millis(100), "{:?}", begun.elapsed());
    }

    #[test]
    fn another_rate_counts_from_the_next_call_on() {
        let (rate, start) = (CallRate::default(), Instant::now());
        assert_eq!(waits(&rate, "a", start, 10), [Duration::ZERO; 10]);
        assert_eq!(rate.reserve(&"a", 1, start).0, Duration::from_secs(1));
        // So many calls count as waiting.
        assert_eq!(rate.reserve(&"a", 1000, start).0, Duration::from_millis(1) * WAITING);
    }

    #[test]
    fn callers_that_are_gone_take_no_memory() {
        let (rate, mut now) = (CallRate::default(), Instant::now());
        for caller in 0..100_000u32 {
            now += Duration::from_millis(5);
            rate.reserve(&caller, 100, now);
        }
        assert!(rate.0.lock().unwrap().paid.len() <= PRUNE_AT);
    }
}
