//! The sources of the page and the metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::rpc::context::Service;
use crate::storage::store::Store;

#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) service: Arc<Service>,
    pub(crate) store: Store,
    /// Values of the model.
    pub(crate) parameters: usize,
}

pub(super) const TICK: Duration = Duration::from_secs(1);
