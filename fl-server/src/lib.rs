//! The server of a federation: it runs rounds, aggregates what clients send, loses nothing, and can say to the byte
//! what every round cost. It knows layouts, values and frames; what kind of model they are is the clients' business.
//!
//! `engine` decides, `driver` owns the state, `service` moves bytes, `store` and `blobs` keep them.

mod admin;
mod allocator;
mod audit;
mod baseline;
pub mod blobs;
mod chain;
mod change;
pub mod cli;
mod clock;
pub mod config;
mod desk;
pub mod disk;
mod door;
mod driver;
pub mod engine;
pub mod event;
pub mod global;
pub mod history;
mod inspect;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
pub mod ledger;
mod limits;
mod live;
pub mod plan;
pub mod record;
pub mod report;
mod restore;
mod revoked;
mod seldom;
mod serve;
mod service;
mod start;
pub mod store;
mod tally;
mod trace;
mod traffic;
mod weights;
mod what_if;

pub use allocator::settle_allocator;
pub use config::{ServerConfig, Tuning};
pub use event::{Evaluated, Event, RoundSummary, Waiting};
pub use live::{Live, LiveError};
pub use plan::RunPlan;
pub use serve::{Ending, Outcome, Serve, ServeError, serve};
