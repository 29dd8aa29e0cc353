//! Second slot: with what precision the values are sent.

pub(crate) mod bf16;
pub(crate) mod dead_zone;
pub(crate) mod exact;
pub(crate) mod half;
#[cfg(test)]
pub(crate) mod laws;
pub(crate) mod natural;
pub(crate) mod numbers;
pub(crate) mod plane;
pub(crate) mod recipe;
pub(crate) mod rotated;
pub(crate) mod sign;
pub(crate) mod spec;
pub(crate) mod ternary;
pub(crate) mod uniform;
