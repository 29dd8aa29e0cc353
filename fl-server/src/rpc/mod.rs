//! The calls of `fl.v1.Federation`, one file each. They check what is said, move bytes, and ask the coordinator; they
//! hold no state of the run and decide nothing.

pub(crate) mod admission;
mod buffers;
mod call_rate;
pub(crate) mod calls;
mod chunks;
pub(crate) mod classes;
pub(crate) mod context;
pub(crate) mod door;
mod download;
pub(crate) mod enrollment;
mod evaluate;
pub(crate) mod fetch;
mod fetch_base;
pub(crate) mod health;
pub(crate) mod join;
mod leave;
pub(crate) mod measure;
mod offer;
mod pace;
mod probe;
pub(crate) mod probes;
pub(crate) mod push;
pub(crate) mod reload;
mod renew;
pub(crate) mod revocable;
pub(crate) mod shared;
pub(crate) mod submit;
pub(crate) mod transfers;
pub(crate) mod turns;
pub(crate) mod verify;
pub(crate) mod watch;
