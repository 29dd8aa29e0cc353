//! What a federated run cost, byte by byte: the data of a report, the questions to it, and the forms of the answers.
//!
//! [`Report`] is plain data. Its tables ([`RoundLine`], [`ClientLine`], [`Participation`], [`TensorLine`]) declare each column
//! once, with unit and meaning, so that every form (text, JSON, CSV, Parquet, the page) shows the same. [`QUERIES`] lists the
//! questions, [`FORMS`] the forms.
//!
//! This crate never touches a socket, a clock, a store or a model.

mod against;
mod costs;
mod error;
mod forms;
mod queries;
mod report;
mod scale;
mod schemas;
pub mod signed;
mod table;
mod text;

pub use against::Against;
pub use against::baseline::BaselineRound;
pub use against::comparison::{Comparison, TotalLine};
pub use against::reach::ReachLine;
pub use against::run::RunRound;
pub use costs::plan::{CostsPlan, Link};
pub use error::Error;
pub use forms::FORMS;
pub use forms::csv::csv;
pub use forms::form::{Answer, Asked, Form, Output};
pub use forms::html::{live_page, page, page_json};
pub use forms::json::{json, object_json, table_json};
pub use forms::parquet::write::parquet;
pub use forms::tensorboard::{EventFile, tensorboard};
pub use forms::text::whole::text;
pub use queries::QUERIES;
pub use queries::direction::DirectionLine;
pub use queries::filter::Filter;
pub use queries::query::Query;
pub use queries::saving::savings;
pub use queries::stage::StageLine;
pub use queries::tensor::TensorTotal;
pub use report::client::ClientLine;
pub use report::costs::{ClientCost, Cost, Costs, RoundCost};
pub use report::flow::Flow;
pub use report::measures::Measures;
pub use report::notes::{MOST_BITS, bits_per_value, notes};
pub use report::participation::Participation;
pub use report::round::RoundLine;
pub use report::run::{Baseline, Run};
pub use report::saving::Saving;
pub use report::settings::{FrameBudget, Settings, words};
pub use report::stages::StageBytes;
pub use report::tensor::{Fidelity, SectionBytes, TensorLine};
pub use report::{Report, SCHEMA};
pub use scale::estimate::{ScaleLine, Scaled};
pub use scale::size::Scale;
pub use schemas::schemas;
pub use table::Table;
pub use table::column::{Cell, Column, Values};
pub use table::line::Columns;
pub use table::schema::Schema;
pub use text::{size, table_text};
