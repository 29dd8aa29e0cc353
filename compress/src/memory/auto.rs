//! Auto: the run resolves it. An encoder without a run uses error feedback.

use crate::memory::error_feedback::{self, Decay};
use crate::memory::method::{Encodes, Entry, MemoryInfo, State};

pub(crate) const METHOD: Entry = Entry {
    info: MemoryInfo {
        name: "auto",
        about: "Error feedback if every client takes part in every round, else CAFe.",
        examples: &["'auto'"],
        encodes: Encodes::Update,
        has_residual: true,
    },
    parameters: None,
    kind: None,
    vectors: 0,
};

pub(crate) fn state(len: usize) -> Box<dyn State> {
    error_feedback::state(Decay::default(), len)
}
