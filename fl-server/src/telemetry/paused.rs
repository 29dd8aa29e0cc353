//! Clients that are connected and take part in no round for now, because of the conditions of their devices.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::event::time;
use crate::clock::Millis;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PausedClient {
    pub(crate) client: String,
    pub(crate) reason: String,
    /// When the client expects to be available; `None` if it does not know.
    pub(crate) until_ms: Option<Millis>,
}

impl PausedClient {
    pub(crate) fn what(&self) -> String {
        let until = self.until_ms.map(|until| format!(" until {} at least", time(until)));
        format!("is paused{}: {}", until.unwrap_or_default(), self.reason)
    }
}

impl fmt::Display for PausedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.client, self.what())
    }
}
