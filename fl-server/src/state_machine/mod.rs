//! The life of a run as a pure function: `decide` says what follows from an input, `apply` is the only change.
//!
//! No socket, file, clock or source of randomness is used here: the time, who is connected and the seed are
//! arguments, so that any run can be replayed and any schedule tested. docs/rounds.md draws it as a table.
//!
//! Of the caller: records are durable before they are applied to what others see and before the reply is sent; after
//! every change of who is connected and at [`Decision::wake`] it decides on a [`Input::Tick`]; and what
//! [`State::pending_work`] names is done, by whoever is alive.

mod apply;
mod closed;
mod decide;
mod evaluated;
mod evaluations;
mod log;
mod opening;
mod pending_work;
mod presence;
mod round;
mod select;
mod state;
mod view;

pub use crate::clock::Millis;
pub use crate::storage::record::{Accepted, Record};
pub use apply::EngineError;
pub use closed::Closed;
pub use decide::{Decision, Input, Reply, Standing, decide};
pub use evaluated::{Evaluated, Summed};
pub use log::Log;
pub use pending_work::{Contribution, PendingWork};
pub use presence::Presence;
pub use round::Round;
pub use select::select;
pub use state::{Phase, State};
