//! The operator's interfaces beside gRPC: the Unix socket of the command line, the page of the run, and its metrics.

pub(crate) mod page;
pub(crate) mod socket;
