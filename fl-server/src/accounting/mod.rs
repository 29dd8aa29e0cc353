//! Counts what every connection and client moved, and for what; keeps the ledger and its hash chain.

pub(crate) mod baseline;
pub(crate) mod client_counters;
mod connection_counters;
pub(crate) mod connections;
pub(crate) mod edge;
pub(crate) mod hash_chain;
pub(crate) mod labels;
pub mod ledger;
pub(crate) mod sample;
pub(crate) mod transfers;
