//! Tests of the whole crate, in one binary: linking is what takes time.

// Helpers are tests too: clippy.toml allows unwrap only inside functions marked as such.
#![allow(clippy::unwrap_used)]

mod configuration;
mod costs;
mod docs;
mod fixtures;
mod forms;
mod golden;
mod json;
mod links;
mod page;
#[cfg(feature = "parquet")]
mod parquet;
mod questions;
mod saving;
mod scale;
mod signed;
mod stage;
mod tiny;
