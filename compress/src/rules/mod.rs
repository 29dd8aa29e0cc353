//! Rules: what stands where a number would be (`density = { by = "entropy", .. }` for `density = 0.01`).
//!
//! A rule chooses a number before encoding, from the tensor's values and what it remembers of earlier rounds. Its memory
//! ([`tracked`]) lives with the encoder and in its state file; nothing of it reaches the wire, so no decoder knows of rules.

pub(crate) mod density;
pub(crate) mod entropy;
pub(crate) mod fisher;
pub(crate) mod magnitude;
pub(crate) mod rank;
pub(crate) mod rule_state;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod schedule;
pub(crate) mod selection;
