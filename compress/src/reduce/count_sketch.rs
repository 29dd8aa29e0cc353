//! Signed sums under several hashes (Charikar, Chen and Farach-Colton 2002).

/// Most rows of a sketch.
pub(super) const MAX_ROWS: u32 = 15;
