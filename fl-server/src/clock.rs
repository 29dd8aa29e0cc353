//! The clock of a run: the times of its deadlines and records.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use tokio::time::Instant;

/// Unix time in milliseconds.
pub type Millis = u64;

/// The time of day in milliseconds since 1970. May jump.
pub(crate) type Wall = fn() -> Millis;

/// Milliseconds since 1970: the time of day when serving began, plus a monotonic clock. So a wall clock that is set
/// back or forward moves no deadline, and the times of a run's records never decrease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    wall: Wall,
    began: Instant,
    began_at: Millis,
}

impl Clock {
    /// Starts at the time of day, or at `last`, the time of the run's last record, if that is later.
    pub(crate) fn new(wall: Wall, last: Millis) -> Self {
        let now = wall();
        if last > now {
            let behind = Duration::from_millis(last - now);
            tracing::warn!(
                ?behind,
                "the system clock is behind the run's last record; the run's times continue from that record"
            );
        }
        Self {
            wall,
            began: Instant::now(),
            began_at: now.max(last),
        }
    }

    pub(crate) fn now(&self) -> Millis {
        let elapsed = self.began.elapsed().as_millis();
        self.began_at.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// The time of day, for calendar dates such as the expiry of certificates.
    pub(crate) fn wall(&self) -> Millis {
        (self.wall)()
    }
}

pub(crate) fn system() -> Millis {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as Millis)
}

/// A time as a date, to the second.
pub(crate) fn moment(at: Millis) -> OffsetDateTime {
    let seconds = i64::try_from(at / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Day and minute of a time in UTC, such as `2026-11-23 20:15Z`.
pub(crate) fn minute(at: Millis) -> String {
    let seconds = i64::try_from(at / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map_or_else(
        |_| at.to_string(),
        |at| format!("{} {:02}:{:02}Z", at.date(), at.hour(), at.minute()),
    )
}

/// Seconds from `since` to `until`; 0 if the clock went back.
pub(crate) fn seconds(until: Millis, since: Millis) -> f64 {
    until.saturating_sub(since) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_jumps_moves_nothing() {
        static WALL: AtomicU64 = AtomicU64::new(5_000_000);
        let clock = Clock::new(|| WALL.load(Ordering::Relaxed), 0);
        for wall in [0, 10_000_000, 4_000_000] {
            WALL.store(wall, Ordering::Relaxed);
            assert_eq!(clock.now(), 5_000_000);
        }
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!((clock.now(), clock.wall()), (5_000_250, 4_000_000));
    }

    #[test]
    fn a_time_is_a_day_and_a_minute() {
        assert_eq!(minute(1_795_464_905_123), "2026-11-23 20:15Z");
        assert_eq!(minute(u64::MAX), u64::MAX.to_string());
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_never_goes_back_before_its_last_record() {
        let clock = Clock::new(|| 1_000, 3_600_000);
        assert_eq!(clock.now(), 3_600_000);
        assert_eq!(Clock::new(|| 1_000, 999).now(), 1_000);
    }
}
