//! What is carried from round to round, decided once: `auto` never leaves the plan, so that every restart and every client
//! takes the same, and what the server could not do is refused before the run begins.

use fl_compress::Memory;

use crate::config::plan::error::{PlanError, value};

/// The memory of updates. `everyone`: whether every client takes part in every round, as far as the plan tells.
///
/// # Errors
/// `Value` for EF21.
pub(crate) fn of_updates(asked: Memory, everyone: bool) -> Result<Memory, PlanError> {
    match asked.resolved(everyone) {
        Memory::Ef21 => Err(refused(
            "compression.uplink.memory",
            asked,
            "the server would have to keep a vector as long as the model for every client, and it keeps none; take cafe \
             where clients take part now and then, error-feedback where all do in every round",
        )),
        memory => Ok(memory),
    }
}

/// The memory of steps.
///
/// # Errors
/// `Value` for all but none and error feedback.
pub(crate) fn of_steps(asked: Memory) -> Result<Memory, PlanError> {
    let why = match asked.resolved(true) {
        Memory::Cafe => "a step is what updates are predicted by and has no predictor itself; take error-feedback",
        Memory::Ef21 => {
            "its frames are differences from the sum of those before them, and a step is added to the model alone; take \
             error-feedback"
        }
        Memory::Dgc(_) => "it is momentum of local training, and a step is made of updates; take error-feedback",
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
