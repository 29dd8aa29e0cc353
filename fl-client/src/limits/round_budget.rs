//! What the rounds of a run take, compared with the limits: before a round, not in the middle of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fl_proto::Joined;

use super::quota::Quota;
use super::table::Limits;
use crate::conditions::{Moment, Reading};

/// Bytes of a client's memory for each value of a run's model, at least: the model, the update, the residual and its copies while
/// it is encoded and written, and the weights, gradients and moments of a learner, four bytes each.
const MEMORY_A_VALUE: u64 = 32;
/// Bytes of the state folder for each value: the model, the snapshot that it came from, and twice the residual with a frame.
const DISK_A_VALUE: u64 = 24;
/// Bytes of a round beside its frames: states, headers, TLS, pings, and joining.
const OVERHEAD: u64 = 32 * 1024;

#[derive(Debug)]
pub(crate) struct RoundBudget {
    limits: Limits,
    quota: Quota,
    /// Bytes that a round takes on the sockets.
    need: AtomicU64,
    /// Bytes so far, and those when the round began.
    total: AtomicU64,
    begin: AtomicU64,
    /// Limits that the joined run does not fit, each with a sentence.
    unfit: Mutex<Vec<(&'static str, String)>>,
    /// Why bytes cannot be counted.
    broken: Mutex<Option<String>>,
}

impl RoundBudget {
    pub(crate) fn new(limits: Limits, quota: Quota) -> Self {
        Self {
            limits,
            quota,
            need: AtomicU64::new(0),
            total: AtomicU64::new(0),
            begin: AtomicU64::new(0),
            unfit: Mutex::default(),
            broken: Mutex::default(),
        }
    }

    /// A run was joined: what its rounds are expected to take, and whether they fit. `used`: bytes of the state folder beside
    /// this run's, once other runs have given way so that at most so many are left, if they can; called only if they are limited.
    pub(crate) fn joined(&self, joined: &Joined, used: impl FnOnce(u64) -> u64) {
        let values = joined.layout.len() as u64;
        let frame = joined
            .uplink
            .budget
            .map_or(joined.max_frame, |budget| budget.bytes(joined.layout.len()));
        let frame = frame.min(joined.max_frame);
        self.need
            .store(frame.saturating_mul(2).saturating_add(OVERHEAD), Ordering::Relaxed);
        self.round_begins();
        let used = self
            .limits
            .disk
            // For a run that never fits, nothing has to give way.
            .and_then(|disk| disk.checked_sub(disk_of(values)))
            .map_or(0, used);
        let unfit = unfit(&self.limits, values, used);
        for (key, why) in &unfit {
            tracing::warn!(limit = key, "{why}");
        }
        *lock(&self.unfit) = unfit;
    }

    /// Bytes are counted for another round from now on.
    pub(crate) fn round_begins(&self) {
        self.begin.store(self.total.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The client's update of a round is accepted: the next round is expected to take as many bytes.
    pub(crate) fn round_took(&self) {
        let took = self.total.load(Ordering::Relaxed) - self.begin.load(Ordering::Relaxed);
        self.need.store(took.saturating_add(OVERHEAD), Ordering::Relaxed);
    }

    pub(crate) fn count(&self, bytes: u64, now: Moment) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        let failed = self.quota.count(bytes, now).err().map(|error| error.to_string());
        let mut broken = lock(&self.broken);
        if let Some(why) = failed.as_ref().filter(|_| broken.is_none()) {
            tracing::error!(why, "bytes cannot be counted: the client takes part in no round");
        }
        *broken = failed;
    }

    /// Makes the exact count durable.
    pub(crate) fn close(&self) {
        if let Err(error) = self.quota.close() {
            tracing::warn!(%error, "the count of bytes is too high after this");
        }
    }

    /// Whether a round is within the limits, or what is left of the one under way: a reading for each limit that is set.
    pub(crate) fn readings(&self, now: Moment) -> Vec<(&'static str, Reading)> {
        let passed = self.total.load(Ordering::Relaxed) - self.begin.load(Ordering::Relaxed);
        let need = self.need.load(Ordering::Relaxed).saturating_sub(passed);
        let unfit = lock(&self.unfit).clone();
        let unfit = unfit.into_iter().map(|(key, why)| (key, Reading::Fails(why)));
        let broken = lock(&self.broken).clone();
        let broken = broken.map(|why| ("traffic", Reading::Fails(format!("bytes cannot be counted: {why}"))));
        unfit.chain(broken).chain(self.quota.readings(need, now)).collect()
    }

    /// Why a round cannot be finished in the time that is `left`, if so: an update of `frame` bytes, after a training that took as
    /// long as the last one.
    pub(crate) fn too_slow(&self, frame: u64, trained: Option<Duration>, left: Option<Duration>) -> Option<String> {
        let left = left?;
        let rate = self.limits.paces.up.as_ref()?.rate();
        let upload = Duration::from_secs_f64(frame as f64 / rate as f64);
        let training = trained.unwrap_or_default();
        (upload + training > left).then(|| {
            format!(
                "an update of {frame} bytes takes {:.0} s at `limits.upload` after {:.0} s of training, and the round closes in {:.0} s",
                upload.as_secs_f64().ceil(),
                training.as_secs_f64(),
                left.as_secs_f64()
            )
        })
    }
}

pub(crate) fn unfit(limits: &Limits, values: u64, used: u64) -> Vec<(&'static str, String)> {
    let mut unfit = Vec::new();
    for (key, limit, need) in [
        ("memory", limits.memory, values.saturating_mul(MEMORY_A_VALUE)),
        ("disk", limits.disk, disk_of(values).saturating_add(used)),
    ] {
        if let Some(limit) = limit.filter(|limit| need > *limit) {
            let [need, limit] = [need, limit].map(|bytes| bytes.div_ceil(1 << 20));
            let why = format!("the run needs {need} MiB or more, and `limits.{key}` is {limit} MiB: raise it");
            unfit.push((key, why));
        }
    }
    unfit
}

/// Bytes of the state folder for a run with a model of so many values, at least.
pub(crate) fn disk_of(values: u64) -> u64 {
    values.saturating_mul(DISK_A_VALUE)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fl_proto::{Pace, Paces};

    use super::*;
    use crate::state::Disk;

    const NOON: Moment = Moment {
        unix: 1_795_431_600,
        offset: 3600,
    };
    const MIB: u64 = 1 << 20;

    fn budget(folder: &std::path::Path, per_day: u64) -> RoundBudget {
        let quota = Quota::open(folder, Disk { sync: false }, (Some(per_day), None), NOON).unwrap();
        RoundBudget::new(Limits::default(), quota)
    }

    #[test]
    fn a_round_that_was_begun_is_finished_and_the_next_one_waits_for_tomorrow() {
        let folder = tempfile::tempdir().unwrap();
        let budget = budget(folder.path(), 10 * MIB);
        let holds = || matches!(budget.readings(NOON)[..], [(_, Reading::Holds(_))]);
        budget.count(2 * MIB, NOON);
        budget.round_begins();
        budget.count(5 * MIB, NOON);
        budget.round_took();
        assert!(holds(), "the round itself has its bytes");
        budget.round_begins();
        assert!(
            matches!(budget.readings(NOON)[0].1, Reading::FailsUntil(..)),
            "7 of 10 MiB, and a round takes 5"
        );
        let tomorrow = Moment {
            unix: NOON.unix + 86_400,
            ..NOON
        };
        assert!(matches!(budget.readings(tomorrow)[0].1, Reading::Holds(_)));
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let budget = budget(folder.path(), 10 * MIB);
        drop(folder);
        budget.count(MIB, NOON);
        let readings = budget.readings(NOON);
        assert!(
            matches!(&readings[0], ("traffic", Reading::Fails(why)) if why.contains("traffic")),
            "{readings:?}"
        );
    }

    #[test]
    fn a_run_that_does_not_fit_is_named_with_what_it_needs() {
        let limits = Limits {
            memory: Some(100 * MIB),
            disk: Some(100 * MIB),
            ..Limits::default()
        };
        assert!(unfit(&limits, 1_000_000, 0).is_empty());
        let why = unfit(&limits, 4_000_000, 0);
        assert_eq!(
            why,
            [(
                "memory",
                "the run needs 123 MiB or more, and `limits.memory` is 100 MiB: raise it".to_owned()
            )]
        );
        assert_eq!(unfit(&limits, 1_000_000, 90 * MIB)[0].0, "disk");
        assert!(unfit(&Limits::default(), u64::MAX, u64::MAX).is_empty());
    }

    #[test]
    fn an_update_that_cannot_arrive_before_the_deadline_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let mut budget = budget(folder.path(), MIB);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(budget.too_slow(u64::MAX, None, seconds(1)), None, "no limit");
        budget.limits.paces = Paces {
            up: Some(Arc::new(Pace::new(125_000))),
            down: None,
        };
        assert_eq!(budget.too_slow(1_250_000, seconds(20), None), None, "no deadline");
        assert_eq!(budget.too_slow(1_250_000, seconds(20), seconds(31)), None);
        let why = budget.too_slow(1_250_000, seconds(20), seconds(29)).unwrap();
        assert!(
            why.contains("takes 10 s at `limits.upload` after 20 s of training, and the round closes in 29 s"),
            "{why}"
        );
    }
}
