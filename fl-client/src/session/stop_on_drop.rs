//! Work of the learner that ends with the future that waits for it.

use std::sync::Arc;

use crate::learner::Progress;

/// Asks the learner to stop when nobody waits for its answer any more.
#[derive(Default)]
pub(super) struct StopOnDrop(Arc<Progress>);

impl StopOnDrop {
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.0)
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
