//! The two phases of a sweep.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What trials are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// Every point on the seeds of `choose`, evaluated with a validation part; prints which point of a variant is the
    /// best
    Choose,
    /// The chosen points on the seeds of `report`, evaluated with the test set
    Report,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Choose => "choose",
            Self::Report => "report",
        })
    }
}
