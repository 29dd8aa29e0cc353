//! A run compared with another run, or with another way of training.

pub(crate) mod baseline;
pub(crate) mod comparison;
pub(crate) mod reach;
pub(crate) mod run;

use crate::against::baseline::BaselineRound;
use crate::against::comparison::{Comparison, TotalLine};
use crate::against::reach::ReachLine;
use crate::against::run::RunRound;
use crate::report::Report;
use crate::table::schema::Schema;

/// The other side of a comparison.
#[derive(Debug, Clone, Copy)]
pub enum Against<'a> {
    /// Federated averaging with this many bytes per value: 4 or 2.
    FedAvg(u64),
    /// Another run.
    Run(&'a Report),
}

impl Against<'_> {
    /// Finds a baseline by name: `fedavg-fp32`, `fedavg-fp16`, or `fp32` and `fp16` for short.
    pub fn baseline(name: &str) -> Option<Self> {
        match name {
            "fedavg-fp32" | "fp32" => Some(Self::FedAvg(4)),
            "fedavg-fp16" | "fp16" => Some(Self::FedAvg(2)),
            _ => None,
        }
    }
}

impl Report {
    /// Compares this run.
    pub fn against(&self, other: Against<'_>) -> Comparison {
        match other {
            Against::FedAvg(bytes) => baseline::compare(self, bytes),
            Against::Run(other) => run::compare(self, other),
        }
    }
}

/// The tables of comparisons.
pub(crate) static SCHEMAS: &[Schema] = &[
    Schema::of::<BaselineRound>(
        "against a baseline",
        "One line per round: `--against fedavg-fp32`, and `rounds` of its JSON.",
    ),
    Schema::of::<RunRound>(
        "against a run",
        "One line per round: `--against RUN2`, and `rounds` of its JSON.",
    ),
    Schema::of::<TotalLine>(
        "totals of a comparison",
        "Two lines, this run's first: `totals` of the JSON of `--against`.",
    ),
    Schema::of::<ReachLine>(
        "reach of a comparison",
        "One line per accuracy or perplexity that one of the runs reached: `reach` of the JSON of `--against RUN2`.",
    ),
];
