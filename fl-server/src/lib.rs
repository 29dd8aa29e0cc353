//! The server of a federation: it runs rounds, aggregates updates, stores every round durably, and reports to the byte
//! what every round cost. It knows layouts, values and frames, but not the kind of model.
//!
//! Layers, from top to bottom: `cli`, `server`, `rpc` and `admin`, `coordinator`, `reporting`, `model`,
//! `state_machine`, `accounting`, `telemetry`, `registry` and `identity`, `storage` and `config`. A layer uses those below it, never one above.

// Only this workspace uses the crate: a public item has a doc comment where its name does not say enough.
#![allow(missing_docs)]
// A replay on another machine gives the same model.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod accounting;
mod admin;
pub mod cli;
mod clock;
mod config;
mod coordinator;
mod error;
mod identity;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod lock;
pub mod model;
mod rate_limited;
mod registry;
mod reporting;
mod rpc;
mod server;
pub mod state_machine;
mod storage;
mod telemetry;

pub use accounting::ledger;
pub use admin::page::listener::{Live, LiveError};
pub use config::live::{LiveSettings, OwnPaths};
pub use config::plan::{self, RunPlan};
pub use config::server::{ServerConfig, Tuning};
pub use error::ServeError;
pub use reporting::{history, report};
pub use rpc::reload::{Reload, ServerFiles};
pub use server::allocator::settle_allocator;
pub use server::local::LocalRun;
pub use server::options::{Ending, Enrollment, Identity, Outcome, Serve};
pub use server::serve::serve;
pub use storage::{blobs, disk, record, store};
pub use telemetry::event::{self, Event, ModelEvaluation, RoundSummary, Waiting};
