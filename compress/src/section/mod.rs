//! One encoded tensor: its recipe, then its planes. Here the three slots are put one after the other, and undone.
//!
//! What a recipe's first slot leaves is one part or several: a part is a plane of values, and before it a plane of
//! indices if its places are not known otherwise. Only low rank has more than one: both factors and the remainder.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod input;
pub(crate) mod parts;
pub(crate) mod planes;
pub(crate) mod sinks;
