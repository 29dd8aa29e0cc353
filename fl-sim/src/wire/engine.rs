//! The table `[engine]` of an experiment: how its federations run.

use std::fmt;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::links::Clock;

/// How federations run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// What carries the messages.
    #[serde(default)]
    pub wire: Wire,
    /// The clients' links, for the virtual clock: a table `{ up, down, latency, loss }`, or a list of them, each with the
    /// number of its `clients`. Without limits if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<toml::Value>,
    /// Seconds that a client trains in a round, on the virtual clock.
    #[serde(default)]
    pub train_seconds: f64,
    /// Seconds for each example that it trains on, in addition.
    #[serde(default)]
    pub seconds_per_example: f64,
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
    /// The virtual clock of `clients` clients.
    ///
    /// # Errors
    /// If a key is out of range, or of no use with the wire; the error names it.
    pub(crate) fn clock(&self, clients: usize) -> anyhow::Result<Clock> {
        let keys = [
            ("links", self.links.is_some()),
            ("train_seconds", self.train_seconds != 0.0),
            ("seconds_per_example", self.seconds_per_example != 0.0),
        ];
        for (key, is_set) in keys {
            ensure!(
                !is_set || self.wire == Wire::Model,
                "`engine.{key}`: only `engine.wire = \"model\"` has a virtual clock"
            );
        }
        Clock::new(
            self.links.as_ref(),
            clients,
            self.train_seconds,
            self.seconds_per_example,
        )
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
