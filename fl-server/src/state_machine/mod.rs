//! The life of a run as a pure function: `decide` turns an input into records, and only `apply` changes the state.
//!
//! This module uses no socket, file, clock or source of randomness: the time, the connected clients and the seed are
//! arguments, so that any run can be replayed and any schedule tested. docs/rounds.md has the table of transitions.
//!
//! Contract of the caller: records are durable before they are applied to a state that others see, and before the reply is
//! sent; after every change of the connected clients and at [`Decision::wake`], the caller decides on an [`Input::Tick`]; and
//! the caller does the work that [`State::pending_work`] names, also after a restart.

mod align;
mod apply;
mod by_client;
mod decide;
mod evaluated;
mod evaluations;
mod handout;
mod log;
mod opening;
mod pending_work;
mod presence;
mod recorded_rounds;
mod round;
mod select;
mod state;
mod uplinks;
mod versions;
mod view;

pub use crate::clock::Millis;
pub use crate::storage::record::{Accepted, ClientEvaluation, Record, RecordedStep, Transfer};
pub use apply::ImpossibleRecord;
pub use by_client::ByClient;
pub use decide::{Decision, Input, Reply, Standing, decide};
pub use evaluated::EvaluationSum;
pub use log::Log;
pub use pending_work::{Contribution, PendingWork};
pub use presence::Presence;
pub use recorded_rounds::{RecordedRound, RecordedRounds, Rollback};
pub use round::Round;
pub use select::select;
pub use state::{Phase, State};
pub use versions::{Version, Versions};
