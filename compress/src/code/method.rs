//! The coders by name, as asked and as chosen.

use serde::{Deserialize, Serialize};

/// How planes of symbols become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// At their plain width.
    #[default]
    Pack,
    /// By their frequencies, each plane on its own, where that is shorter.
    Rans,
    /// By Rice codes around the most frequent symbol.
    Rice,
    /// By prefix codes of their frequencies.
    Huffman,
    /// By adaptive binary arithmetic coding that learns from neighbours, rows and columns.
    Context,
}

/// A coder, or the one that makes a tensor's section smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeSpec {
    /// At their plain width.
    #[default]
    Pack,
    /// By their frequencies, each plane on its own.
    Rans,
    /// By Rice codes around the most frequent symbol.
    Rice,
    /// By prefix codes of their frequencies.
    Huffman,
    /// By adaptive binary arithmetic coding that learns from neighbours, rows and columns.
    Context,
    /// By whichever of these is shortest for the tensor.
    Auto,
}

impl CodeSpec {
    /// The coders to try; the first of the shortest is taken.
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
