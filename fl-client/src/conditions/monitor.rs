//! Reads the conditions again and again, on a thread of its own: a slow device or program holds up nothing else.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use fl_proto::Availability;
use tokio::sync::{oneshot, watch};

use super::decision::Decision;
use super::moment::Moment;
use super::sampler::{Extra, Sampler};
use super::settling::Settling;
use super::when::When;
use crate::error::Error;
use crate::waits::if_ok;

/// The settled decision about the conditions. The thread ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Monitor {
    decision: watch::Receiver<Decision>,
    clock: fn() -> Moment,
    /// Asks for readings now. Dropped with the last handle; `None` without conditions.
    wake: Option<Arc<mpsc::Sender<oneshot::Sender<()>>>>,
}

impl Monitor {
    /// Reads the conditions once, then keeps reading them. Blocks until the first readings are there. Without conditions, the
    /// client is always available and there is no thread.
    pub(crate) fn start(when: When, extra: Option<Extra>) -> Result<Self, Error> {
        let clock = when.surroundings.clock;
        let mut sampler = Sampler::new(when, extra);
        if sampler.is_empty() {
            let (_, decision) = watch::channel(Decision::Available);
            return Ok(Self {
                decision,
                clock,
                wake: None,
            });
        }
        let begin = Instant::now();
        let first = sampler.decide();
        log(&first);
        let every = sampler.when().every;
        let wait = sampler.when().settle;
        let (decisions, decision) = watch::channel(first.clone());
        let (wake, woken) = mpsc::channel::<oneshot::Sender<()>>();
        let mut settling = Settling::new(first, begin.elapsed(), wait);
        let spawned = thread::Builder::new().name("conditions".to_owned()).spawn(move || {
            loop {
                let asked = match woken.recv_timeout(every) {
                    Ok(asked) => Some(asked),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if settling.next(begin.elapsed(), sampler.decide()) {
                    log(settling.settled());
                    decisions.send_replace(settling.settled().clone());
                }
                if let Some(asked) = asked {
                    // Nobody may wait any more.
                    let _ = asked.send(());
                }
            }
        });
        spawned.map_err(|e| Error::Crashed(format!("the thread that reads `[when]` cannot be started: {e}")))?;
        Ok(Self {
            decision,
            clock,
            wake: Some(Arc::new(wake)),
        })
    }

    /// Reads the conditions now. Completes when the decision holds.
    pub(crate) async fn refresh(&self) {
        let Some(wake) = &self.wake else { return };
        let (done, read) = oneshot::channel();
        if wake.send(done).is_ok() {
            // The thread has ended: the last decision stays.
            let _ = read.await;
        }
    }

    pub(crate) fn decision(&self) -> Decision {
        self.decision.borrow().clone()
    }

    /// The decision, from now on marked as seen.
    pub(crate) fn see(&mut self) -> Decision {
        self.decision.borrow_and_update().clone()
    }

    /// Completes when the decision is another than the one that was seen last. Never completes without conditions. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        if_ok(self.decision.changed()).await;
    }

    /// The settled decision for the server.
    pub(crate) fn availability(&self) -> Availability {
        let decision = self.decision();
        let reason = decision.why().unwrap_or_default();
        match decision {
            Decision::Available => Availability::Available,
            Decision::Paused(_) => Availability::Paused { reason },
            Decision::NotBefore(at, _) => Availability::NotBefore {
                left: Duration::from_secs(at.saturating_sub((self.clock)().unix)),
                reason,
            },
        }
    }

    pub(crate) async fn available(&mut self) {
        if_ok(self.decision.wait_for(Decision::is_available)).await;
    }

    pub(crate) async fn unavailable(&mut self) {
        if_ok(self.decision.wait_for(|decision| !decision.is_available())).await;
    }
}

fn log(decision: &Decision) {
    match decision.why() {
        None => tracing::info!("available: the conditions of `[when]` and `[limits]` are fulfilled"),
        Some(why) => tracing::info!(why, "paused by `[when]` or `[limits]`"),
    }
}
