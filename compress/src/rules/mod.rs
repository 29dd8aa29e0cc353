//! Rules that choose a number of a spec: `density = { by = "entropy", .. }` in place of `density = 0.01`.
//!
//! A rule chooses the number before encoding, from the values of the tensor and its state from earlier rounds. The
//! state ([`rule_state`]) belongs to the encoder and its state file. It never reaches the wire, so decoders know
//! nothing about rules. A rule is one file and one line of the table in [`density`].

pub(crate) mod agent;
pub(crate) mod bandit;
pub(crate) mod bits;
pub(crate) mod density;
pub(crate) mod density_range;
pub(crate) mod differential;
pub(crate) mod entropy;
pub(crate) mod entropy_rank;
pub(crate) mod fisher;
pub(crate) mod magnitude;
pub(crate) mod method;
pub(crate) mod network;
pub(crate) mod rank;
pub(crate) mod round_context;
pub(crate) mod rule_state;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod schedule;
pub(crate) mod selection;
pub(crate) mod spectrum;
pub(crate) mod variance;

/// Whether `kind` is the number of a rule's state in a state file, or 0, the number of none.
pub(crate) fn is_kind(kind: u32) -> bool {
    density::is_kind(kind) || kind == entropy_rank::KIND
}
