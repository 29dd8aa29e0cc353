//! What a federated run cost, byte by byte: the data of a report, and every form in which people and programs read it.
//!
//! [`Report`] is plain data. Its tables ([`RoundLine`], [`ClientLine`], [`Participation`], [`TensorLine`]) know their
//! columns, units and meaning, so that every form of them (text, JSON, CSV, Parquet, the page) says the same.
//!
//! This crate never touches a socket, a clock, a store or a model.

mod against;
mod columns;
mod costs;
mod directions;
mod error;
mod flow;
mod forms;
mod lines;
mod page;
mod query;
mod report;
mod savings;
mod scale;
pub mod signed;
mod stages;
mod tensors;
mod text;

pub use against::{Against, BaselineRound, Comparison, ReachLine, RunRound, TotalLine};
pub use columns::{Cell, Column, Line, Table, Values};
pub use costs::{ClientCost, Costs, CostsPlan, Link, RoundCost};
pub use directions::DirectionLine;
pub use error::Error;
pub use flow::Flow;
pub use forms::{EventFile, csv, json, object_json, parquet, table_json, tensorboard};
pub use lines::{ClientLine, Participation, RoundLine, TensorLine};
pub use page::{live_page, page, page_json};
pub use query::{By, Filter, schemas};
pub use report::{Baseline, Report, Run, SCHEMA};
pub use savings::{Saving, savings};
pub use scale::{Scale, ScaleLine, Scaled};
pub use stages::StageLine;
pub use tensors::TensorTotal;
pub use text::{size, table_text, text};
