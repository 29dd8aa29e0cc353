//! What a client may take from its device, `[limits]` of client.toml.

mod process;
mod quota;
mod round_budget;
mod table;

pub use table::Limits;

pub(crate) use quota::Quota;
pub(crate) use round_budget::{RoundBudget, disk_of, unfit};
pub(crate) use table::LimitsTable;
