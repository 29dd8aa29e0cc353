//! Tests of the whole crate in one binary, because linking dominates the build time.

// clippy.toml allows unwrap only in functions marked as tests, and helpers are not.
#![allow(clippy::unwrap_used)]

mod configuration;
mod costs;
mod docs;
mod fixtures;
mod forms;
mod golden;
mod json;
mod links;
mod measured;
mod page;
#[cfg(feature = "parquet")]
mod parquet;
mod questions;
mod saving;
mod scale;
mod settings;
mod signed;
mod stage;
mod tiny;
