//! The life of a run as a pure function: `decide` says what follows from an input, `apply` is the only change.
//!
//! No socket, file, clock or source of randomness is used here: the time, who is connected and the seed are
//! arguments, so that any run can be replayed and any schedule tested. docs/rounds.md draws it as a table.
//!
//! Of the caller: records are durable before they are applied to what others see and before the reply is sent; after
//! every change of who is connected and at [`Decision::wake`] it decides on a [`Input::Tick`]; and what
//! [`State::owed`] names is done, by whoever is alive.

mod apply;
mod decide;
mod evaluations;
mod log;
mod opening;
mod presence;
mod select;
mod state;
mod view;

pub use crate::storage::record::{Accepted, Millis, Record};
pub use apply::EngineError;
pub use decide::{Decision, Input, Reply, Standing, decide};
pub use evaluations::{Evaluated, Summed};
pub use log::Log;
pub use presence::Presence;
pub use select::select;
pub use state::{Closed, Contribution, Owed, Phase, Round, State};
