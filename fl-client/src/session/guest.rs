//! Whether this client may take part in rounds now: the conditions of its device, and its limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fl_proto::{Joined, Meter};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::base::{self, RunBase};
use crate::client::state_of;
use crate::conditions::{Decision, Extra, Moment, Monitor};
use crate::config::ClientConfig;
use crate::error::Error;
use crate::limits::{Quota, RoundBudget};
use crate::state::{Disk, bytes_below, make_room};

/// How often bytes are counted. A kill loses at most the bytes of this time from the count.
const COUNT_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Guest {
    pub(super) monitor: Monitor,
    pub(super) budget: Arc<RoundBudget>,
    /// Counts bytes, if the client has a limit of them.
    counting: Option<JoinHandle<()>>,
    counted: ByteCount,
    /// Whether the limits were compared with the joined run.
    knows_run: AtomicBool,
}

/// The bytes of a meter that were not counted yet.
#[derive(Debug, Clone)]
struct ByteCount {
    meter: Arc<Meter>,
    budget: Arc<RoundBudget>,
    clock: fn() -> Moment,
    seen: Arc<AtomicU64>,
}

impl Guest {
    /// Starts reading the conditions and counting bytes. Completes when the first readings are there; the state folder must be locked.
    pub(super) async fn start(config: &Arc<ClientConfig>) -> Result<Self, Error> {
        let config = Arc::clone(config);
        let runtime = Handle::current();
        let started = tokio::task::spawn_blocking(move || {
            let _entered = runtime.enter();
            Self::start_blocking(&config)
        })
        .await;
        started.map_err(|e| Error::Crashed(format!("reading the conditions: {e}")))?
    }

    /// Takes other conditions and limits. On an error, those of before stay.
    pub(super) async fn reload(&mut self, config: &Arc<ClientConfig>) -> Result<(), Error> {
        // What was counted is on disk, exactly, before it is read.
        self.settle().await;
        let before = std::mem::replace(self, Self::start(config).await?);
        before.counting.iter().for_each(JoinHandle::abort);
        Ok(())
    }

    fn start_blocking(config: &ClientConfig) -> Result<Self, Error> {
        let limits = config.limits.clone();
        let clock = config.when.surroundings.clock;
        let disk = Disk { sync: config.sync };
        let per = (limits.per_day, limits.per_month);
        let counts = per != (None, None);
        let is_limited = counts || limits.memory.is_some() || limits.disk.is_some();
        let quota = Quota::open(&config.state, disk, per, clock())?;
        let budget = Arc::new(RoundBudget::new(limits, quota));
        let own = Arc::clone(&budget);
        let extra = is_limited.then(|| Box::new(move |now| own.readings(now)) as Extra);
        let monitor = Monitor::start(config.when.clone(), extra)?;
        let counted = ByteCount {
            meter: Arc::clone(&config.meter),
            budget: Arc::clone(&budget),
            clock,
            seen: Arc::new(AtomicU64::new(config.meter.written() + config.meter.read())),
        };
        let counting = counts.then(|| tokio::spawn(keep_counting(counted.clone())));
        Ok(Self {
            monitor,
            budget,
            counting,
            counted,
            knows_run: AtomicBool::new(false),
        })
    }

    /// A run was joined whose rounds must fit the limits.
    pub(super) async fn joined(&self, joined: &Arc<Joined>, config: &ClientConfig) {
        let budget = Arc::clone(&self.budget);
        let joined = Arc::clone(joined);
        let state = config.state.clone();
        let disk = Disk { sync: config.sync };
        let runs = config.limits.runs;
        let measured = tokio::task::spawn_blocking(move || {
            budget.joined(&joined, |room| {
                let own = state.join("runs").join(joined.run.as_str());
                // What is needed anyway: where it leaves no room, nothing else has to give way.
                let needed = RunBase::of(&joined).ok().flatten().map_or(0, |base| base.len());
                if needed > room {
                    return needed;
                }
                base::prune(&state.join("base"), joined.base, runs, || {
                    bytes_below(&state, &own) > room
                });
                make_room(&state, &joined.run, state_of(&joined), disk, runs, room)
            });
        });
        // A panic is in the log already.
        let _ = measured.await;
        self.knows_run.store(true, Ordering::Release);
        self.monitor.refresh().await;
    }

    /// The limits are to be compared with another run.
    pub(super) fn leave_run(&self) {
        self.knows_run.store(false, Ordering::Release);
    }

    /// Whether [`Guest::joined`] was called since the limits were read.
    pub(super) fn knows_run(&self) -> bool {
        self.knows_run.load(Ordering::Acquire)
    }

    /// Why the client may not take part in a round that begins now, if so. Limits are compared with the bytes of this moment,
    /// conditions were read a while ago.
    pub(super) fn why_not(&self) -> Option<String> {
        self.monitor
            .decision()
            .why()
            .or_else(|| Decision::of(&self.budget.readings((self.counted.clock)()), true).why())
    }

    pub(super) async fn end(self) {
        self.settle().await;
        self.counting.iter().for_each(JoinHandle::abort);
    }

    async fn settle(&self) {
        if self.counting.is_none() {
            return;
        }
        let counted = self.counted.clone();
        // A panic is in the log already.
        let _ = tokio::task::spawn_blocking(move || {
            counted.count();
            counted.budget.close();
        })
        .await;
    }
}

impl ByteCount {
    fn count(&self) {
        let now = self.meter.written() + self.meter.read();
        let before = self.seen.swap(now, Ordering::AcqRel);
        if now > before {
            self.budget.count(now - before, (self.clock)());
        }
    }
}

async fn keep_counting(counted: ByteCount) {
    let mut every = tokio::time::interval(COUNT_INTERVAL);
    loop {
        every.tick().await;
        if counted.meter.written() + counted.meter.read() > counted.seen.load(Ordering::Acquire) {
            let counted = counted.clone();
            // A panic is in the log already.
            let _ = tokio::task::spawn_blocking(move || counted.count()).await;
        }
    }
}
