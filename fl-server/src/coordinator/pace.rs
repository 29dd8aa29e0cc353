//! When to write bytes that are in no ledger row yet to the ledger's tail.

use crate::clock::Millis;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Since when there are bytes outside of rows and tail.
    since: Option<Millis>,
    /// Times that the tail was written since the last record.
    idle: u32,
}

/// The tail is written this long after such bytes were first seen. The delay doubles while no record follows, such as
/// during the pings of waiting clients.
const KEEP_WITHIN: Millis = 1_000;
// 16 s: a kill loses no more than the counts of the last seconds.
const DOUBLINGS: u32 = 4;

impl Pace {
    /// Whether to write the tail now. `unkept`: whether there are bytes outside of rows and tail.
    pub(crate) fn is_due(&mut self, now: Millis, unkept: bool) -> bool {
        if !unkept {
            self.since = None;
            return false;
        }
        // A clock that was set back delays the tail once.
        let since = self.since.map_or(now, |since| since.min(now));
        self.since = Some(since);
        now - since >= KEEP_WITHIN << self.idle.min(DOUBLINGS)
    }

    pub(crate) fn kept(&mut self) {
        self.since = None;
        self.idle = self.idle.saturating_add(1);
    }

    pub(crate) fn recorded(&mut self) {
        self.idle = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_soon_and_less_often_while_nothing_else_comes() {
        let (mut pace, mut now, mut kept) = (Pace::default(), 0, Vec::new());
        while now < 60_000 {
            now += 500;
            if pace.is_due(now, true) {
                kept.push(now);
                pace.kept();
            }
        }
        assert_eq!(kept, [1_500, 4_000, 8_500, 17_000, 33_500, 50_000]);
        assert!(!pace.is_due(now + 500, true), "bytes seen at 50.5 s wait for 16 s");
        pace.recorded();
        assert!(
            pace.is_due(now + 500, true),
            "once something is recorded, 1 s is long enough"
        );
    }

    #[test]
    fn without_bytes_nothing_is_kept_and_a_clock_set_back_delays_it_only_once() {
        let mut pace = Pace::default();
        assert!(!pace.is_due(10_000, false) && !pace.is_due(99_000, true));
        assert!(!pace.is_due(5_000, true) && pace.is_due(6_000, true));
        assert!(!pace.is_due(7_000, false) && !pace.is_due(7_000, true));
    }
}
