//! Rice codes of symbols: a symbol is coded as its rank by distance from the most frequent symbol, since frequent
//! symbols are usually close to it.
//!
//! The plane is the most frequent symbol in one byte, then the Rice codes of the ranks.

use crate::code::bits::BitWriter;
use crate::code::coder::{Entry, IndexCoding, SymbolReader};
use crate::code::rice::{BLOCK, Decoder as Gaps, encode_block};

pub(crate) const METHOD: Entry = Entry {
    name: "rice",
    encode: |plane, out| {
        encode(plane.symbols, plane.width, plane.center(), out);
        out.len() < plane.limit
    },
    open: |bytes, width| Some(Box::new(Decoder::new(bytes, width)?)),
    indices: IndexCoding::Rice,
};

/// Appends `symbols`, each below `1 << width`; `center` is the most frequent one.
#[inline(never)]
fn encode(symbols: &[u8], width: u32, center: u8, out: &mut Vec<u8>) {
    out.push(center);
    let unfolded = unfolded(center, width);
    let mut folded = [0; 256];
    (0..)
        .zip(&unfolded[..1 << width])
        .for_each(|(place, &symbol)| folded[usize::from(symbol)] = place);
    let mut bits = BitWriter::new(out);
    let mut buffer = [0; BLOCK];
    for block in symbols.chunks(BLOCK) {
        let buffer = &mut buffer[..block.len()];
        buffer
            .iter_mut()
            .zip(block)
            .for_each(|(place, &symbol)| *place = folded[usize::from(symbol)]);
        encode_block(buffer, &mut bits);
    }
    bits.finish();
}

/// The symbols below `1 << width` by distance from `center`, the lower of two first; then zeros.
fn unfolded(center: u8, width: u32) -> [u8; 256] {
    let mut symbols = [0; 256];
    let center = u32::from(center);
    let near = (0..1u32 << width).flat_map(|far| [center.checked_sub(far), Some(center + far).filter(|_| far > 0)]);
    let inside = near.flatten().filter(|&symbol| symbol < 1 << width);
    symbols
        .iter_mut()
        .zip(inside)
        .for_each(|(place, symbol)| *place = symbol as u8);
    symbols
}

/// Decodes symbols in order. Past the end it returns arbitrary symbols, and [`Decoder::finish`] returns `false`.
#[derive(Debug)]
struct Decoder<'a> {
    gaps: Gaps<'a>,
    unfolded: Box<[u8; 256]>,
    /// Largest rank decoded so far, and the largest rank of the alphabet.
    largest: u32,
    limit: u32,
}

impl<'a> Decoder<'a> {
    /// Opens `bytes`, with symbols below `1 << width`; `None` if the first byte is not such a symbol.
    fn new(bytes: &'a [u8], width: u32) -> Option<Self> {
        let (&center, bytes) = bytes.split_first()?;
        (u32::from(center) < 1 << width).then(|| Self {
            gaps: Gaps::new(bytes),
            unfolded: Box::new(unfolded(center, width)),
            largest: 0,
            limit: (1 << width) - 1,
        })
    }
}

impl SymbolReader for Decoder<'_> {
    #[inline(never)]
    fn read(&mut self, out: &mut [u8]) {
        let mut buffer = [0; BLOCK];
        for part in out.chunks_mut(BLOCK) {
            let buffer = &mut buffer[..part.len()];
            self.gaps.read(buffer);
            for (symbol, &place) in part.iter_mut().zip(&*buffer) {
                self.largest = self.largest.max(place);
                *symbol = self.unfolded[place as usize % 256];
            }
        }
    }

    /// Whether every byte was consumed and every symbol is below `1 << width`.
    fn finish(&self) -> bool {
        self.largest <= self.limit && self.gaps.finish()
    }
}
