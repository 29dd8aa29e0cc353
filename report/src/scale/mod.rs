//! A run at another size.

pub(crate) mod estimate;
pub(crate) mod size;
