//! Progress of a training, and the requests to pause and to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Progress of a training, shared by the learner and its observers.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    stop: AtomicBool,
    wake: Notify,
    /// Whether `rest` asks for a pause: saves the lock at each step.
    pause: AtomicBool,
    rest: Mutex<Rest>,
    change: Condvar,
}

#[derive(Debug, Default)]
struct Rest {
    asked: bool,
    /// Whether the learner waits.
    taken: bool,
    /// How long the learner waited so far, without a pause that it is in.
    waited: Duration,
}

impl Progress {
    /// Reports that `done` of `total` steps are done.
    pub fn set(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Steps done and steps in total (0 before the first call of [`Progress::set`]).
    pub fn read(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Asks the learner to stop: the round is over or the process is stopping. Ends a pause.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.notify_waiters();
        let _rest = self.rest();
        self.change.notify_all();
    }

    /// Whether to stop. A learner checks this once per step and then returns an error. While the training is paused, this waits
    /// until it is resumed or stopped.
    pub fn stopped(&self) -> bool {
        if self.pause.load(Ordering::Acquire) {
            let mut rest = self.rest();
            rest.taken = true;
            let begin = Instant::now();
            while rest.asked && !self.is_stopped() {
                rest = self.change.wait(rest).unwrap_or_else(PoisonError::into_inner);
            }
            rest.taken = false;
            rest.waited += begin.elapsed();
        }
        self.is_stopped()
    }

    /// Asks the learner to wait at its next step, until [`Progress::resume`].
    pub fn pause(&self) {
        self.rest().asked = true;
        self.pause.store(true, Ordering::Release);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.rest().asked = false;
        self.pause.store(false, Ordering::Release);
        self.change.notify_all();
    }

    /// Whether the learner waits in [`Progress::stopped`]. A learner that does not check it cannot be paused.
    pub fn is_resting(&self) -> bool {
        self.rest().taken
    }

    /// How long the learner waited in pauses that have ended.
    pub(crate) fn paused(&self) -> Duration {
        self.rest().waited
    }

    /// As [`Progress::stopped`], without waiting.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Completes when the learner is asked to stop.
    pub(crate) async fn stopping(&self) {
        let mut woken = std::pin::pin!(self.wake.notified());
        woken.as_mut().enable();
        if !self.is_stopped() {
            woken.await;
        }
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn a_learner_waits_while_it_is_paused_and_until_it_is_stopped() {
        let progress = Arc::new(Progress::default());
        assert!(!progress.stopped());
        for stop in [false, true] {
            progress.pause();
            let learner = Arc::clone(&progress);
            let steps = thread::spawn(move || learner.stopped());
            while !progress.is_resting() {
                thread::yield_now();
            }
            assert!(!steps.is_finished());
            if stop {
                progress.stop()
            } else {
                progress.resume()
            }
            assert_eq!(steps.join().unwrap(), stop);
            assert!(!progress.is_resting());
        }
        assert!(progress.stopped(), "a stop counts more than a pause");
    }
}
