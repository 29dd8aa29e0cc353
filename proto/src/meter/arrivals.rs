//! When the latest bytes of a connection were read: an upload that is one message has no other trace of its beginning.

use std::collections::VecDeque;

use tokio::time::Instant;

// Reads that are remembered. The longest message on a stream of `Watch` is about 12 segments of TCP.
const KEPT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Bytes read so far, and when.
    reads: VecDeque<(u64, Instant)>,
}

impl Arrivals {
    pub(super) fn add(&mut self, count: u64, now: Instant) {
        if self.reads.len() == KEPT {
            self.reads.pop_front();
        }
        self.reads.push_back((count, now));
    }

    /// The first read after which more than `count` bytes were read: their number and the time. `None` if it is forgotten
    /// or has not happened.
    pub(super) fn after(&self, count: u64) -> Option<(u64, Instant)> {
        let at = self.reads.partition_point(|(read, _)| *read <= count);
        // What came before the oldest that is remembered is not known.
        let is_known = at > 0 || self.reads.len() < KEPT;
        self.reads.get(at).copied().filter(|_| is_known)
    }

    pub(super) fn last(&self) -> Option<(u64, Instant)> {
        self.reads.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_read_that_brought_a_byte_is_found_while_it_is_remembered() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut arrivals = Arrivals::default();
        assert_eq!((arrivals.after(0), arrivals.last()), (None, None));
        for i in 1..=KEPT as u64 {
            arrivals.add(100 * i, at(i));
        }
        assert_eq!(arrivals.after(250), Some((300, at(3))));
        assert_eq!(arrivals.after(300), Some((400, at(4))));
        assert_eq!(arrivals.after(50), None, "an earlier one may be forgotten");
        assert_eq!(arrivals.after(6_400), None);
        assert_eq!(arrivals.last(), Some((6_400, at(64))));
        arrivals.add(6_500, at(65));
        assert_eq!((arrivals.after(150), arrivals.after(200)), (None, Some((300, at(3)))));
    }
}
