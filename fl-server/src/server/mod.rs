//! Builds a server, runs it, recovers what it had stored, and shuts it down.

pub(crate) mod allocator;
pub(crate) mod recover;
pub(crate) mod serve;
