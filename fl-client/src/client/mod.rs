//! What a client computes with and must not lose: learner, model, memory, and their state on disk. Nothing here is async:
//! [`ClientActor`] calls every method on the blocking pool.

mod actor;
mod evaluate;
mod model;
mod pending_update;
mod replica;
mod run;
mod state;
mod train;

pub(crate) use actor::ClientActor;
pub(crate) use pending_update::PendingUpdate;
pub(crate) use replica::HeldModel;
pub(crate) use run::{bind, same_run, state_of};
pub(crate) use state::ClientState;
pub(crate) use train::RoundRequest;
