//! Third slot: symbols to bytes.
//!
//! Everything that is coded is a plane of symbols of 1 to 8 bits; wider words are cut into one plane a byte. A plane is
//! written by entropy coding only where that is shorter than its plain width, so it never grows by more than a byte.

pub(crate) mod bits;
pub(crate) mod context;
pub(crate) mod gaps;
pub(crate) mod huffman;
pub(crate) mod levels;
pub(crate) mod method;
pub(crate) mod pack;
pub(crate) mod rans;
pub(crate) mod rice;
pub(crate) mod sparse;
pub(crate) mod symbols;
pub(crate) mod table;
pub(crate) mod tokens;
pub(crate) mod words;
