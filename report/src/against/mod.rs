//! A run beside another one, or beside another way of training.

mod baseline;
mod reach;
mod run;

pub use baseline::BaselineRound;
pub use reach::ReachLine;
pub use run::RunRound;

use serde::Serialize;

use crate::columns::{Table, line};
use crate::report::Report;
use crate::text;

/// What a run is compared with.
#[derive(Debug, Clone, Copy)]
pub enum Against<'a> {
    /// Federated averaging whose values have this many bytes: 4 or 2.
    FedAvg(u64),
    /// Another run.
    Run(&'a Report),
}

impl Against<'_> {
    /// The baseline of this name: `fedavg-fp32`, `fedavg-fp16`, or `fp16` for short.
    pub fn baseline(name: &str) -> Option<Self> {
        match name {
            "fedavg-fp32" | "fp32" => Some(Self::FedAvg(4)),
            "fedavg-fp16" | "fp16" => Some(Self::FedAvg(2)),
            _ => None,
        }
    }
}

line! {
    /// One side of a comparison, over all rounds.
    pub struct TotalLine {
        /// The run's name, or the baseline's.
        what: String [""],
        /// Rounds that closed.
        rounds: u64 [""],
        /// Updates counted.
        updates: u64 [""],
        /// Bytes up.
        up: u64 ["B"],
        /// Bytes down.
        down: u64 ["B"],
        /// Their sum.
        bytes: u64 ["B"],
        /// That sum over this run's.
        times: Option<f64> [""],
        /// Accuracy of the newest model that was evaluated.
        accuracy: Option<f64> [""],
    }
}

/// A comparison. Its tables are objects of columns in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What was compared with.
    pub against: String,
    /// What has to be known to read the tables.
    pub notes: Vec<String>,
    /// Both sides as a whole: two lines.
    pub totals: Table,
    /// Rounds side by side.
    pub rounds: Table,
    /// Bytes that each side had moved when it reached an accuracy; empty beside a baseline.
    pub reach: Table,
}

impl Report {
    /// Compares this run.
    pub fn against(&self, other: Against<'_>) -> Comparison {
        match other {
            Against::FedAvg(bytes) => baseline::compare(self, bytes),
            Against::Run(other) => run::compare(self, other),
        }
    }

    fn total_line(&self) -> TotalLine {
        TotalLine {
            what: self.run.name.clone(),
            rounds: self.rounds.iter().filter(|line| line.closed).count() as u64,
            updates: self.rounds.iter().map(|line| line.updates).sum(),
            up: self.totals.socket_up,
            down: self.totals.socket_down,
            bytes: self.totals.socket(),
            times: Some(1.0),
            accuracy: self.accuracy(),
        }
    }
}

/// A number over another; nothing where that is zero.
fn ratio(number: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| number as f64 / by as f64)
}

impl Comparison {
    /// The comparison for a person.
    pub fn text(&self) -> String {
        let mut out = format!("Against {}\n", text::name(&self.against));
        for note in &self.notes {
            out.push_str(note);
            out.push('\n');
        }
        for (title, table) in [
            ("In all", &self.totals),
            (
                "Accuracy for bytes: what had been moved when it was first reached",
                &self.reach,
            ),
            ("Rounds", &self.rounds),
        ] {
            if !table.is_empty() {
                out.push_str(&format!("\n{title}\n"));
                text::write(&mut out, table);
            }
        }
        out
    }
}
