//! One encoded tensor: its recipe, then its planes. Here the three slots are put one after the other, and undone.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod input;
pub(crate) mod planes;
pub(crate) mod sinks;
