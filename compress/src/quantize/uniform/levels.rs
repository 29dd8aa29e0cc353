//! Levels shared by encoder and decoder.

/// The symbol of level zero; for one bit, the symbol of the lower level.
pub(crate) fn middle(bits: u32) -> u8 {
    ((1u32 << (bits - 1)) - 1) as u8
}
