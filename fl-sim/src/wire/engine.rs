//! The table `[engine]` of an experiment: how its federations run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How federations run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// What carries the messages.
    #[serde(default)]
    pub wire: Wire,
}

/// What carries the messages of a federation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Sockets with TLS: the server and the clients as they are deployed.
    #[default]
    Tls,
    /// Calls in memory: the same learners, encoders, decisions, aggregation and frames. The bytes of the sockets are computed.
    Model,
}

impl Engine {
    /// Whether it is the default, with which results have the keys that they had before there was a choice.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "tls",
            Self::Model => "model",
        })
    }
}
