//! What a client may take from its device, `[limits]` of client.toml.

mod process;
mod table;

pub use table::Limits;

pub(crate) use table::LimitsTable;
