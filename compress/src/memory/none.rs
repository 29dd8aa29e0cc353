//! No memory: the frame carries `C(delta)`, and the rest is lost.

use crate::memory::cafe::Stateless;
use crate::memory::method::{Encodes, Entry, MemoryInfo, State};

pub(crate) const METHOD: Entry = Entry {
    info: MemoryInfo {
        name: "none",
        about: "Values that are not sent are lost.",
        examples: &["'none'"],
        encodes: Encodes::Update,
        has_residual: false,
    },
    parameters: None,
    kind: None,
    vectors: 0,
};

pub(crate) fn state(_len: usize) -> Box<dyn State> {
    Box::new(Stateless(&METHOD))
}
