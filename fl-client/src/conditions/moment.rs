//! Local time.

use std::time::{SystemTime, UNIX_EPOCH};

use time::{OffsetDateTime, UtcOffset};

/// A moment in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970, UTC.
    pub unix: u64,
    /// Seconds by which local time is ahead of UTC.
    pub offset: i32,
}

const MINUTE: u64 = 60;
/// Minutes of a day.
pub(super) const DAY: u32 = 24 * 60;

impl Moment {
    /// Now, by the system's clock and its time zone (`TZ` or `/etc/localtime`; UTC without either).
    pub fn now() -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        Self {
            unix,
            offset: offset_at(unix),
        }
    }

    /// Minutes since local midnight.
    pub(super) fn minute(self) -> u32 {
        let local = i128::from(self.unix) + i128::from(self.offset);
        let minute = local.div_euclid(i128::from(MINUTE)).rem_euclid(i128::from(DAY));
        u32::try_from(minute).unwrap_or(0)
    }

    /// Seconds since 1970 at the begin of the minute that is `minutes` from now.
    pub(super) fn after(self, minutes: u32) -> u64 {
        let local = i128::from(self.unix) + i128::from(self.offset);
        let into = u64::try_from(local.rem_euclid(i128::from(MINUTE))).unwrap_or(0);
        self.unix.saturating_sub(into) + MINUTE * u64::from(minutes)
    }

    /// Local time, as if it were UTC.
    pub(crate) fn local(self) -> OffsetDateTime {
        let local = i64::try_from(self.unix)
            .unwrap_or(i64::MAX)
            .saturating_add(i64::from(self.offset));
        OffsetDateTime::from_unix_timestamp(local).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// Seconds since 1970 of a local time, given as if it were UTC, as far as local time does not change until then.
    pub(crate) fn unix_of_local(self, local: u64) -> u64 {
        local.saturating_add_signed(-i64::from(self.offset))
    }

    /// The local time of day at `unix`, `22:00`, as far as local time does not change until then.
    pub(crate) fn time_of_day(self, unix: u64) -> String {
        let minute = Self { unix, ..self }.minute();
        format!("{:02}:{:02}", minute / 60, minute % 60)
    }
}

fn offset_at(unix: u64) -> i32 {
    let at = i64::try_from(unix)
        .ok()
        .and_then(|unix| OffsetDateTime::from_unix_timestamp(unix).ok());
    at.and_then(|at| UtcOffset::local_offset_at(at).ok())
        .map_or(0, UtcOffset::whole_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_count_from_local_midnight() {
        // 1970-01-01 23:30:20 UTC.
        let unix = 23 * 3600 + 30 * 60 + 20;
        for (offset, minute) in [(0, 1410), (3600, 30), (-3600, 1350), (5 * 3600 + 1800, 300)] {
            let moment = Moment { unix, offset };
            assert_eq!(moment.minute(), minute);
            assert_eq!(moment.after(0), unix - 20);
            assert_eq!(moment.after(30), 86_400);
        }
        assert_eq!(Moment { unix, offset: 3600 }.time_of_day(unix + 60), "00:31");
        assert_eq!(Moment { unix: 0, offset: -60 }.minute(), 1439);
    }
}
