//! The data of a comparison.

use serde::Serialize;

use crate::report::Report;
use crate::table::Table;
use crate::table::line::line;

line! {
    /// One side of a comparison, over all rounds.
    pub struct TotalLine {
        /// The name of the run or the baseline.
        what: String [""],
        /// Closed rounds.
        rounds: u64 [""],
        /// Accepted updates.
        updates: u64 [""],
        /// Bytes up.
        up: u64 ["B"],
        /// Bytes down.
        down: u64 ["B"],
        /// Bytes in both directions.
        bytes: u64 ["B"],
        /// These bytes over this run's.
        times: Option<f64> [""],
        /// Accuracy of the newest evaluated model.
        accuracy: Option<f64> [""],
        /// Perplexity of the newest evaluated model, if the model of some client is a language model.
        perplexity: Option<f64> [""],
    }
}

/// A comparison. Its tables are objects of columns in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The name of the other side.
    pub against: String,
    /// What a reader must know to read the tables, as sentences.
    pub notes: Vec<String>,
    /// Both sides as a whole: two lines, this run's first.
    pub totals: Table,
    /// Rounds side by side.
    pub rounds: Table,
    /// Bytes that each side had moved when it reached an accuracy or a perplexity; empty for a baseline.
    pub reach: Table,
}

/// The totals of a run, as one side of a comparison.
pub(super) fn totals(report: &Report) -> TotalLine {
    TotalLine {
        what: report.run.name.clone(),
        rounds: report.closed().count() as u64,
        updates: report.rounds.iter().map(|line| line.updates).sum(),
        up: report.totals.socket_up,
        down: report.totals.socket_down,
        bytes: report.totals.socket(),
        times: Some(1.0),
        accuracy: report.accuracy(),
        perplexity: report.perplexity(),
    }
}

/// A number over another; `None` if the other is zero.
pub(super) fn ratio(number: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| number as f64 / by as f64)
}
