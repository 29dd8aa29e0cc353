//! Builds a server, runs it, recovers what it had stored, and shuts it down.

pub(crate) mod allocator;
mod build;
pub(crate) mod local;
pub(crate) mod options;
mod own_certificate;
mod recover;
pub(crate) mod serve;
mod task;
