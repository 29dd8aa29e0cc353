//! The one task that owns the state of the run.
//!
//! Requests come through a bounded channel. All that are waiting are decided together, their records made durable by
//! one flush, and only then are they answered and the new state shown. Heavy work on the model happens elsewhere
//! ([`model_task`]); the coordinator answers meanwhile.

pub(crate) mod actor;
pub(crate) mod bookkeeping;
pub(crate) mod change;
pub(crate) mod command;
mod commit;
pub(crate) mod fidelity;
pub(crate) mod model_task;
pub(crate) mod notifications;
pub(crate) mod pace;
pub(crate) mod presence;
mod run;
