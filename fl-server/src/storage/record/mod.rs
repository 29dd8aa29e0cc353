//! Records: the durable events of a run.
//!
//! A run is the fold of its records in order; nothing else about it is stored. A record holds facts and never their
//! consequences, because a later version of the rules may derive others. docs/rounds.md lists what each record changes.

mod bytes;
mod error;
mod kinds;
mod limited;

pub use crate::clock::Millis;
pub use error::RecordError;
#[cfg(test)]
pub(crate) use kinds::samples;
pub use kinds::{Accepted, ClientEvaluation, Record, RecordedStep, Transfer};
pub use limited::{Claim, Limited};
