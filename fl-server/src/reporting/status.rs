//! One run in a line, for `fl-server status`.

use serde::{Deserialize, Serialize};

/// One run in a line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunStatus {
    pub(crate) run: String,
    pub(crate) state: String,
    pub(crate) planned: u64,
    pub(crate) closed: u64,
    /// Damage that the server has found and worked around, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) damage: Vec<String>,
}
