//! The client's own count of the bytes on its sockets, by day and by month of local time. It survives crashes.
//!
//! ```text
//! state/traffic: "FLTR" | major u8 | minor u8 | [`Count`] | CRC-32C u32
//! ```
//!
//! The file is ahead of the count by up to [`RESERVE`] bytes, so that it is written once for so many bytes. After a crash the
//! count continues from the file: it is too high by at most the reserve, and too low by at most what passed since the last call
//! of [`Quota::count`].

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fl_compress::wire::{CHECKSUM_BYTES, unseal};
use serde::{Deserialize, Serialize};

use crate::conditions::{Moment, Reading};
use crate::error::Error;
use crate::state::{Disk, sealed};

const MAGIC: &[u8; 4] = b"FLTR";
const VERSION: [u8; 2] = [1, 0];
const LEN: u64 = (4 + 2 + 5 + 5 + 10 + 10 + CHECKSUM_BYTES) as u64;
/// Bytes that are reserved with one write of the file.
const RESERVE: u64 = 256 * 1024;
const MIB: f64 = 1048576.0;

#[derive(Debug)]
pub(crate) struct Quota {
    path: PathBuf,
    disk: Disk,
    per_day: Option<u64>,
    per_month: Option<u64>,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    now: Count,
    /// What the file says: never less than `now` after a call.
    kept: Count,
}

/// Days since 1970 and months since year 0, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    day: u32,
    month: u32,
    day_bytes: u64,
    month_bytes: u64,
}

impl Quota {
    /// Continues the count in the state folder.
    pub(crate) fn open(
        state: &std::path::Path,
        disk: Disk,
        (per_day, per_month): (Option<u64>, Option<u64>),
        now: Moment,
    ) -> Result<Self, Error> {
        let path = state.join("traffic");
        let is_limited = per_day.is_some() || per_month.is_some();
        let found = if is_limited { disk.read(&path, LEN)? } else { None };
        let kept = match found {
            None => Count::begin(now),
            Some(bytes) => read(&bytes).map_err(|what| {
                Error::state(
                    &path,
                    format!("{what}; delete it to count the bytes of `limits` from 0"),
                )
            })?,
        };
        Ok(Self {
            path,
            disk,
            per_day,
            per_month,
            counts: Mutex::new(Counts { now: kept, kept }),
        })
    }

    pub(crate) fn count(&self, bytes: u64, now: Moment) -> Result<(), Error> {
        let mut counts = self.counts();
        counts.now.enter(now);
        counts.now.add(bytes);
        let is_kept = (counts.kept.day, counts.kept.month) == (counts.now.day, counts.now.month)
            && counts.kept.day_bytes >= counts.now.day_bytes;
        if is_kept || bytes == 0 {
            return Ok(());
        }
        let mut ahead = counts.now;
        ahead.add(RESERVE);
        self.write(&mut counts, ahead)
    }

    /// Makes the exact count durable: called when the client stops.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut counts = self.counts();
        match counts.kept == counts.now {
            true => Ok(()),
            false => {
                let exact = counts.now;
                self.write(&mut counts, exact)
            }
        }
    }

    /// Whether a round of `need` bytes is within the limits: a reading for each limit.
    pub(crate) fn readings(&self, need: u64, now: Moment) -> Vec<(&'static str, Reading)> {
        let mut count = self.counts().now;
        count.enter(now);
        let day = self.per_day.map(|limit| {
            let used = (limit, count.day_bytes, need);
            ("per_day", reading("per_day", used, next_day(now), "today"))
        });
        let month = self.per_month.map(|limit| {
            let used = (limit, count.month_bytes, need);
            ("per_month", reading("per_month", used, next_month(now), "this month"))
        });
        day.into_iter().chain(month).collect()
    }

    fn write(&self, counts: &mut Counts, count: Count) -> Result<(), Error> {
        self.disk.replace(&self.path, &[&sealed(MAGIC, VERSION, &count, &[])])?;
        counts.kept = count;
        Ok(())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB)
}

fn reading(key: &str, (limit, used, need): (u64, u64, u64), next: u64, span: &str) -> Reading {
    if need > limit {
        return Reading::Fails(format!(
            "a round takes {}, and `limits.{key}` is {}: raise it",
            size(need),
            size(limit)
        ));
    }
    let text = format!("{} of {} used {span}", size(used), size(limit));
    if used.saturating_add(need) <= limit {
        Reading::Holds(text)
    } else {
        Reading::FailsUntil(next, text)
    }
}

impl Count {
    fn begin(now: Moment) -> Self {
        let (day, month) = date(now);
        Self {
            day,
            month,
            day_bytes: 0,
            month_bytes: 0,
        }
    }

    /// Another day begins at 0, and another month. A clock that is set back by a day at most changes nothing: the hour that a change of
    /// time zone repeats must not.
    fn enter(&mut self, now: Moment) {
        let (day, month) = date(now);
        if (day..=day.saturating_add(1)).contains(&self.day) {
            return;
        }
        (self.day, self.day_bytes) = (day, 0);
        if self.month != month {
            (self.month, self.month_bytes) = (month, 0);
        }
    }

    fn add(&mut self, bytes: u64) {
        self.day_bytes = self.day_bytes.saturating_add(bytes);
        self.month_bytes = self.month_bytes.saturating_add(bytes);
    }
}

/// Days since 1970, and months since year 0, of local time.
fn date(now: Moment) -> (u32, u32) {
    let local = now.local();
    let days = u32::try_from(local.unix_timestamp().div_euclid(86_400)).unwrap_or(0);
    let month = u32::try_from(local.year()).unwrap_or(0) * 12 + u32::from(u8::from(local.month())) - 1;
    (days, month)
}

/// The next local midnight, in seconds since 1970.
fn next_day(now: Moment) -> u64 {
    let (day, _) = date(now);
    now.unix_of_local((u64::from(day) + 1) * 86_400)
}

/// The next local midnight that begins a month.
fn next_month(now: Moment) -> u64 {
    let (day, month) = date(now);
    let first = (1..=31).find(|more| {
        let then = Moment {
            unix: now.unix + more * 86_400,
            ..now
        };
        date(then).1 != month
    });
    now.unix_of_local((u64::from(day) + first.unwrap_or(31)) * 86_400)
}

fn read(bytes: &[u8]) -> Result<Count, fl_compress::Error> {
    let mut reader = unseal(bytes, MAGIC, VERSION)?;
    let count = reader.value("counts")?;
    reader.finish("bytes after the counts")?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DISK: Disk = Disk { sync: false };
    const LIMITS: (Option<u64>, Option<u64>) = (Some(10 << 20), Some(50 << 20));

    /// 2026-11-23, 12:00 in UTC+1.
    fn noon() -> Moment {
        Moment {
            unix: 1_795_431_600,
            offset: 3600,
        }
    }

    fn after(days: u64) -> Moment {
        Moment {
            unix: noon().unix + days * 86_400,
            ..noon()
        }
    }

    #[test]
    fn a_day_and_a_month_begin_at_zero_and_their_ends_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let quota = Quota::open(folder.path(), DISK, LIMITS, noon()).unwrap();
        quota.count(9 << 20, noon()).unwrap();
        let midnight = noon().unix + 12 * 3600;
        assert_eq!(
            quota.readings(2 << 20, noon()),
            [
                (
                    "per_day",
                    Reading::FailsUntil(midnight, "9.0 MiB of 10.0 MiB used today".into())
                ),
                (
                    "per_month",
                    Reading::Holds("9.0 MiB of 50.0 MiB used this month".into())
                ),
            ]
        );
        assert!(matches!(quota.readings(1 << 20, noon())[0].1, Reading::Holds(_)));
        assert!(matches!(quota.readings(2 << 20, after(1))[0].1, Reading::Holds(_)));
        for day in 1..=4 {
            quota.count(10 << 20, after(day)).unwrap();
        }
        // December begins in seven and a half days.
        let december = noon().unix + 12 * 3600 + 7 * 86_400;
        let month = quota.readings(2 << 20, after(5)).pop().unwrap();
        assert_eq!(
            month.1,
            Reading::FailsUntil(december, "49.0 MiB of 50.0 MiB used this month".into())
        );
        assert!(
            quota
                .readings(2 << 20, after(8))
                .iter()
                .all(|(_, reading)| matches!(reading, Reading::Holds(_)))
        );
        let never = quota.readings(11 << 20, noon()).remove(0).1;
        let text = "a round takes 11.0 MiB, and `limits.per_day` is 10.0 MiB: raise it";
        assert_eq!(never, Reading::Fails(text.into()));
    }

    #[test]
    fn a_clock_that_is_set_back_by_an_hour_over_midnight_changes_nothing() {
        let mut count = Count::begin(after(1));
        count.add(5);
        count.enter(noon());
        assert_eq!(count.day_bytes, 5);
        count.enter(Moment { unix: 0, offset: 0 });
        assert_eq!(count.day_bytes, 0, "a clock that is far off begins anew");
    }

    #[test]
    fn golden_bytes_and_broken_files() {
        let count = Count {
            day: 20_780,
            month: 24_322,
            day_bytes: 5,
            month_bytes: 1 << 33,
        };
        let bytes = sealed(MAGIC, VERSION, &count, &[]);
        assert!(bytes.len() as u64 <= LEN);
        assert_eq!(read(&bytes).unwrap(), count);
        assert_eq!(bytes[..13], *b"FLTR\x01\x00\xac\xa2\x01\x82\xbe\x01\x05");
        let folder = tempfile::tempdir().unwrap();
        for broken in 0..bytes.len() {
            let mut other = bytes.clone();
            other[broken] ^= 1;
            assert!(read(&other).is_err() || broken == 5, "{broken}");
            assert!(read(&bytes[..broken]).is_err());
        }
        std::fs::write(folder.path().join("traffic"), &bytes[1..]).unwrap();
        let error = Quota::open(folder.path(), DISK, LIMITS, noon())
            .unwrap_err()
            .to_string();
        assert!(error.contains("traffic") && error.contains("delete it"), "{error}");
    }

    proptest! {
        /// A kill between any two calls loses nothing of the count, and adds at most the reserve.
        #[test]
        fn a_kill_never_makes_the_count_smaller(
            parts in proptest::collection::vec((0u64..400_000, any::<bool>()), 1..30),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let open = || Quota::open(folder.path(), DISK, LIMITS, noon()).unwrap();
            let (mut quota, mut sum, mut kills) = (open(), 0, 0);
            for (bytes, killed) in parts {
                quota.count(bytes, noon()).unwrap();
                sum += bytes;
                if killed {
                    quota = open();
                    kills += 1;
                }
                let counted = quota.counts().now.day_bytes;
                prop_assert!(counted >= sum && counted <= sum + kills * RESERVE, "{} of {}", counted, sum);
            }
            quota.close().unwrap();
            let (before, again) = (quota.counts().now, open());
            prop_assert_eq!(again.counts().now, before);
        }
    }
}
