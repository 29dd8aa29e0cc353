//! What a federated run cost, byte by byte: the data of a report, and every form in which people and programs read it.
//!
//! [`Report`] is plain data. Its tables ([`RoundLine`], [`ClientLine`], [`Participation`], [`TensorLine`]) know their
//! columns, units and meaning, so that every form of them (text, JSON, CSV, Parquet, the page) says the same.
//!
//! This crate never touches a socket, a clock, a store or a model.

mod columns;
mod flow;
mod lines;
mod report;
pub mod signed;

pub use columns::{Cell, Column, Line, Table, Values};
pub use flow::Flow;
pub use lines::{ClientLine, Participation, RoundLine, TensorLine};
pub use report::{Baseline, Report, Run, SCHEMA};
