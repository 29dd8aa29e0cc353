//! What the server asks of a client in a round.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fl_proto::RoundState;

/// What the server asks of a client in a round. Shared with the training, because the server may ask anew meanwhile.
#[derive(Debug)]
pub(crate) struct RoundRequest {
    attempt: AtomicU32,
    /// 0: none.
    budget: AtomicU64,
    /// 0: none.
    bandwidth: AtomicU32,
}

impl RoundRequest {
    pub(crate) fn new(attempt: u32, budget: Option<u64>, bandwidth: Option<u32>) -> Self {
        Self {
            attempt: AtomicU32::new(attempt),
            budget: AtomicU64::new(stored(budget)),
            bandwidth: AtomicU32::new(bandwidth.map_or(0, |bandwidth| bandwidth.max(1))),
        }
    }

    /// The server asked again.
    pub(crate) fn renew(&self, state: &RoundState) {
        self.attempt.store(state.attempt, Ordering::Release);
        self.budget.store(stored(state.budget), Ordering::Release);
        let bandwidth = state.bandwidth.map_or(0, |bandwidth| bandwidth.max(1));
        self.bandwidth.store(bandwidth, Ordering::Release);
    }

    /// The attempt of the round in which the server asks.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Acquire)
    }

    /// Most bytes of the update's frame, in place of the run's budget.
    pub(crate) fn budget(&self) -> Option<u64> {
        Some(self.budget.load(Ordering::Acquire)).filter(|budget| *budget > 0)
    }

    /// Rate of this client's link in millionths of the median of the cohort, as the server measured it.
    pub(crate) fn bandwidth(&self) -> Option<u32> {
        Some(self.bandwidth.load(Ordering::Acquire)).filter(|bandwidth| *bandwidth > 0)
    }
}

/// No frame has a byte or none: both budgets ask for the smallest.
fn stored(budget: Option<u64>) -> u64 {
    budget.map_or(0, |budget| budget.max(1))
}
