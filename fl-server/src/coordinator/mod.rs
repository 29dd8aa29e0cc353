//! The one task that owns the state of the run.
//!
//! Requests arrive through a bounded channel. The task decides all waiting requests together, makes their records
//! durable by one flush, and only then replies and publishes the new state. Heavy work on the model happens on other
//! threads ([`model_task`]).

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
