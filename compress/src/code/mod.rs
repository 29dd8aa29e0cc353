//! Third slot of a recipe, the lossless code: symbols to bytes.
//!
//! The input of every coder is a plane of symbols of 1 to 8 bits; wider words are split into one plane per byte. A
//! plane is entropy coded only if that is shorter than packing, so coding never costs more than one extra byte.

pub(crate) mod bits;
pub(crate) mod coder;
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
