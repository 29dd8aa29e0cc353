//! The levels of a block.

/// The symbol of level zero; of the lower level for one bit.
pub(crate) fn middle(bits: u32) -> u8 {
    ((1u32 << (bits - 1)) - 1) as u8
}
