//! Rules that choose a number of a spec: `density = { by = "entropy", .. }` in place of `density = 0.01`.
//!
//! A rule chooses the number before encoding, from the values of the tensor and its state from earlier rounds. The
//! state ([`rule_state`]) belongs to the encoder and its state file. It never reaches the wire, so decoders know
//! nothing about rules. A rule is one file and one line of the table in [`density`].

pub(crate) mod bits;
pub(crate) mod density;
pub(crate) mod entropy;
pub(crate) mod fisher;
pub(crate) mod magnitude;
pub(crate) mod method;
pub(crate) mod network;
pub(crate) mod rank;
pub(crate) mod rule_state;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod schedule;
pub(crate) mod selection;
