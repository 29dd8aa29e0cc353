//! Keeps a condition that changes often from stopping and starting the client, and from filling the stream to the server.

use std::time::Duration;

use super::decision::Decision;

/// The decision that holds, after those that were made.
///
/// A client stops at once, and is available again after its conditions were fulfilled for a while without interruption. So it
/// changes at most twice in that time.
#[derive(Debug)]
pub(super) struct Settling {
    wait: Duration,
    settled: Decision,
    /// Since when every decision was [`Decision::Available`], while `settled` is not.
    good: Option<Duration>,
    changed: Duration,
}

impl Settling {
    pub(super) fn new(first: Decision, now: Duration, wait: Duration) -> Self {
        Self {
            wait,
            settled: first,
            good: None,
            changed: now,
        }
    }

    pub(super) fn settled(&self) -> &Decision {
        &self.settled
    }

    /// Takes the decision of `now`, a monotonic time. Returns whether the settled one changed.
    pub(super) fn next(&mut self, now: Duration, seen: Decision) -> bool {
        if seen.is_like(&self.settled) {
            self.good = None;
            return false;
        }
        let ready = match (self.settled.is_available(), seen.is_available()) {
            (true, _) => true,
            (false, true) => now >= self.good.get_or_insert(now).saturating_add(self.wait),
            // Another reason: nothing that the server must know at once.
            (false, false) => {
                self.good = None;
                now >= self.changed.saturating_add(self.wait)
            }
        };
        if ready {
            *self = Self::new(seen, now, self.wait);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reading::Reading;
    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    fn decision(kind: u8) -> Decision {
        let fails = |key| Decision::of(&[(key, Reading::Fails("x".into()))], false);
        match kind {
            0 => Decision::Available,
            1 => fails("on_mains"),
            _ => fails("hours"),
        }
    }

    #[test]
    fn it_stops_at_once_and_starts_after_a_while() {
        let at = Duration::from_secs;
        let mut settling = Settling::new(decision(0), at(0), WAIT);
        assert!(settling.next(at(15), decision(1)));
        for (second, kind, changes) in [(20, 0, false), (49, 0, false), (50, 0, true), (51, 1, true)] {
            assert_eq!(settling.next(at(second), decision(kind)), changes, "{second}");
        }
        // An interruption begins the wait anew.
        for (second, kind) in [(60, 0), (80, 1), (81, 0), (110, 0)] {
            assert!(!settling.next(at(second), decision(kind)), "{second}");
        }
        assert!(settling.next(at(111), decision(0)) && settling.settled().is_available());
    }

    proptest! {
        #[test]
        fn it_changes_at_most_twice_in_the_wait(kinds in proptest::collection::vec(0u8..3, 1..200)) {
            let mut settling = Settling::new(decision(0), Duration::ZERO, WAIT);
            let mut changes = Vec::new();
            for (second, kind) in kinds.into_iter().enumerate() {
                let now = Duration::from_secs(3 * second as u64);
                if settling.next(now, decision(kind)) {
                    changes.push(now);
                }
            }
            for three in changes.windows(3) {
                prop_assert!(three[2] - three[0] >= WAIT);
            }
        }
    }
}
