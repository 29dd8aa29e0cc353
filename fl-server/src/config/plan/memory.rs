//! Resolves `memory = "auto"` when the plan is read, so that every restart and every client uses the same memory, and refuses
//! memories that the server does not support.

use fl_compress::{Encodes, Memory};

use crate::config::plan::error::{PlanError, value};

/// The memory of updates. `everyone`: whether the plan asks every client in every round.
///
/// # Errors
/// `Value` for a memory that the server would have to mirror.
pub(crate) fn of_updates(asked: Memory, everyone: bool) -> Result<Memory, PlanError> {
    let memory = asked.resolved(everyone);
    match memory.info().encodes {
        Encodes::FromSum => Err(refused(
            "compression.uplink.memory",
            asked,
            "the server would have to keep a vector of the model's size for every client; use cafe if clients take part in \
             some rounds, error-feedback if all take part in every round",
        )),
        _ => Ok(memory),
    }
}

/// The memory of model updates.
///
/// # Errors
/// `Value` for a memory that encodes something other than the update.
pub(crate) fn of_model_updates(asked: Memory) -> Result<Memory, PlanError> {
    let memory = asked.resolved(true);
    let why = match memory.info().encodes {
        Encodes::FromModelUpdate => {
            "model updates have no predictor, because they are the predictor of updates; use error-feedback"
        }
        Encodes::FromSum => {
            "its frames are differences from the sum of earlier frames, but a model update is added to the model; use \
             error-feedback"
        }
        Encodes::Momenta => "it is momentum of local training, which model updates do not have; use error-feedback",
        Encodes::Update => return Ok(memory),
    };
    Err(refused("compression.downlink.memory", asked, why))
}

fn refused(key: &'static str, asked: Memory, why: &str) -> PlanError {
    value(key, &asked.name(), why.to_owned())
}
