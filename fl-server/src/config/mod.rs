//! Configuration: `server.toml`, `run.toml`, and the list of revoked clients.

pub(crate) mod limits;
pub(crate) mod live;
pub mod plan;
pub(crate) mod revoked;
pub(crate) mod server;
mod tuning;
