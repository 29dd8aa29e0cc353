//! Sections. A section is one encoded tensor: its recipe, then its planes. The encoder runs the three slots in order;
//! the decoder reverses them.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod input;
pub(crate) mod planes;
pub(crate) mod sinks;
