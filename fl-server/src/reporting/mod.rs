//! Reads stored runs: history, report, status, audit, and what a run would have cost under another spec.

pub(crate) mod audit;
pub mod history;
pub(crate) mod inspect;
pub(crate) mod means;
pub(crate) mod moment;
pub mod report;
pub(crate) mod what_if;
