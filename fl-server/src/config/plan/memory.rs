//! Resolves `memory = "auto"` when the plan is read, so that every restart and every client uses the same memory, and refuses
//! memories that the server does not support.

use fl_compress::Memory;

use crate::config::plan::error::{PlanError, value};

/// The memory of updates. `everyone`: whether the plan asks every client in every round.
///
/// # Errors
/// `Value` for EF21.
pub(crate) fn of_updates(asked: Memory, everyone: bool) -> Result<Memory, PlanError> {
    match asked.resolved(everyone) {
        Memory::Ef21 => Err(refused(
            "compression.uplink.memory",
            asked,
            "the server would have to keep a vector of the model's size for every client; use cafe if clients take part in \
             some rounds, error-feedback if all take part in every round",
        )),
        memory => Ok(memory),
    }
}

/// The memory of model updates.
///
/// # Errors
/// `Value` for all but none and error feedback.
pub(crate) fn of_model_updates(asked: Memory) -> Result<Memory, PlanError> {
    let why = match asked.resolved(true) {
        Memory::Cafe => {
            "model updates have no predictor, because they are the predictor of updates; use error-feedback"
        }
        Memory::Ef21 => {
            "its frames are differences from the sum of earlier frames, but a model update is added to the model; use \
             error-feedback"
        }
        Memory::Dgc(_) => "it is momentum of local training, which model updates do not have; use error-feedback",
        memory => return Ok(memory),
    };
    Err(refused("compression.downlink.memory", asked, why))
}

/// The memory's name, as a run.toml has it.
pub(crate) fn name(memory: Memory) -> &'static str {
    match memory {
        Memory::None => "none",
        Memory::Auto => "auto",
        Memory::ErrorFeedback { .. } => "error-feedback",
        Memory::Cafe => "cafe",
        Memory::Ef21 => "ef21",
        Memory::Dgc(_) => "dgc",
    }
}

fn refused(key: &'static str, asked: Memory, why: &str) -> PlanError {
    value(key, &name(asked), why.to_owned())
}
