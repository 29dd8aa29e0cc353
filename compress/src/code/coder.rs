//! What a coder is: for planes of symbols, for planes of indices, and in the table.

use std::fmt::Debug;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Appends symbols if that takes fewer than `limit` bytes; returns whether it did.
    pub(crate) encode: fn(&RawPlane<'_>, &mut Vec<u8>) -> bool,
    /// Decodes the bytes of a plane of symbols below `1 << width`; `None` if what precedes the symbols is corrupt.
    pub(crate) open: for<'a> fn(&'a [u8], u32) -> Option<AnyReader<'a>>,
    pub(crate) indices: IndexCoding,
}

/// How the coder writes a plane of indices, where Rice codes of the gaps are longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexCoding {
    /// Always as Rice codes.
    Rice,
    /// As tokens of the gaps, which are symbols of this coder.
    Tokens,
    /// As flags in the shape of the tensor, by the context coder.
    Flags,
}

/// A plane of symbols to encode.
pub(crate) struct RawPlane<'a> {
    pub(crate) symbols: &'a [u8],
    /// Each symbol is below `1 << width`.
    pub(crate) width: u32,
    /// How often each symbol occurs.
    pub(crate) counts: [u64; 256],
    pub(crate) limit: usize,
}

impl RawPlane<'_> {
    /// The most frequent symbol, the smallest of several.
    pub(crate) fn center(&self) -> u8 {
        let symbols = (0..=255).rev();
        symbols
            .max_by_key(|&symbol: &u8| self.counts[usize::from(symbol)])
            .unwrap_or_default()
    }
}

/// Decodes symbols in order.
pub(crate) trait SymbolReader: Debug {
    /// Fills `out` with the next symbols. All calls together may not ask for more symbols than the plane has.
    fn read(&mut self, out: &mut [u8]);

    /// Whether the plane held exactly the symbols that were read.
    fn finish(&self) -> bool;
}

/// A reader of any coder.
pub(crate) type AnyReader<'a> = Box<dyn SymbolReader + 'a>;
