//! The entropy coders: as requested ([`CodeSpec`]) and as chosen ([`Code`]).

use serde::{Deserialize, Serialize};

/// A lossless coder of planes of symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// No entropy coding: each symbol takes its bit width.
    #[default]
    Pack,
    /// Range asymmetric numeral systems with static frequencies per plane (Duda 2013). A plane for which packing is
    /// shorter is packed.
    Rans,
    /// Rice codes of the distance to the most frequent symbol.
    Rice,
    /// Canonical prefix codes (Huffman 1952) of at most 12 bits.
    Huffman,
    /// Context-adaptive binary arithmetic coding; the contexts are neighbors, rows and columns.
    Context,
}

/// The requested coder: a fixed one, or the one that makes the section of a tensor smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeSpec {
    /// No entropy coding: each symbol takes its bit width.
    #[default]
    Pack,
    /// Range asymmetric numeral systems with static frequencies per plane (Duda 2013).
    Rans,
    /// Rice codes of the distance to the most frequent symbol.
    Rice,
    /// Canonical prefix codes (Huffman 1952) of at most 12 bits.
    Huffman,
    /// Context-adaptive binary arithmetic coding; the contexts are neighbors, rows and columns.
    Context,
    /// The shortest of these for each tensor.
    Auto,
}

impl CodeSpec {
    /// The coders to try. On a tie the first one wins.
    pub(crate) fn candidates(self) -> &'static [Code] {
        match self {
            Self::Pack => &[Code::Pack],
            Self::Rans => &[Code::Rans],
            Self::Rice => &[Code::Rice],
            Self::Huffman => &[Code::Huffman],
            Self::Context => &[Code::Context],
            Self::Auto => &[Code::Rans, Code::Context, Code::Rice, Code::Huffman, Code::Pack],
        }
    }
}
