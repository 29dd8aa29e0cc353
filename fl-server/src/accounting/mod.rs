//! Counts what every connection and client moved, and for what; keeps the ledger and its hash chain.

pub(crate) mod baseline;
pub(crate) mod booked;
pub(crate) mod chain;
pub mod ledger;
pub(crate) mod tally;
pub(crate) mod traffic;
