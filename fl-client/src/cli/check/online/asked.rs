//! What an online check is asked for.

use time::{Duration, OffsetDateTime};

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// Steps of a dry run.
    pub(crate) steps: Option<u32>,
    /// How far this device's clock is ahead of the system's, for tests.
    pub(crate) ahead: Duration,
}

impl Asked {
    pub(super) fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc().saturating_add(self.ahead)
    }
}
