//! The clock of time limits: the system's, or one that a test moves.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::waits::if_ok;

#[derive(Debug, Clone)]
pub(super) struct Clock {
    start: Instant,
    /// The time of a clock that is moved by hand.
    moved: Option<watch::Receiver<Duration>>,
}

impl Clock {
    pub(super) fn system() -> Self {
        Self {
            start: Instant::now(),
            moved: None,
        }
    }

    /// A clock that moves only with `time`.
    #[cfg(test)]
    pub(super) fn by_hand(time: watch::Receiver<Duration>) -> Self {
        Self {
            moved: Some(time),
            ..Self::system()
        }
    }

    pub(super) fn now(&self) -> Duration {
        match &self.moved {
            None => self.start.elapsed(),
            Some(time) => *time.borrow(),
        }
    }

    /// Completes when it is `at`; never for a clock whose hand is gone.
    pub(super) async fn until(&self, at: Duration) {
        match &self.moved {
            None => tokio::time::sleep(at.saturating_sub(self.start.elapsed())).await,
            Some(time) => {
                let mut time = time.clone();
                if_ok(time.wait_for(|now| *now >= at)).await;
            }
        }
    }
}
