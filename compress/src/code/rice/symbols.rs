//! Symbols as Rice codes: the more frequent ones are taken to be near the most frequent one, and are folded around it.
//!
//! The plane is the most frequent symbol in one byte, then the codes of the folded symbols.

use crate::code::bits::BitWriter;
use crate::code::rice::{BLOCK, Decoder as Gaps, encode_block};

/// Appends `symbols`, each below `1 << width`; `center` is the most frequent one.
#[inline(never)]
pub(crate) fn encode(symbols: &[u8], width: u32, center: u8, out: &mut Vec<u8>) {
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

/// The symbols below `1 << width` by their distance from `center`, the lower first of two; then zeros.
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

/// Takes symbols from the front of coded bytes; past their end it makes some up, which [`Decoder::finish`] reports.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    gaps: Gaps<'a>,
    unfolded: Box<[u8; 256]>,
    /// Largest folded symbol taken, and that of the alphabet.
    largest: u32,
    limit: u32,
}

impl<'a> Decoder<'a> {
    /// Opens `bytes`, symbols below `1 << width`; returns nothing if the first byte is no such symbol.
    pub(crate) fn new(bytes: &'a [u8], width: u32) -> Option<Self> {
        let (&center, bytes) = bytes.split_first()?;
        (u32::from(center) < 1 << width).then(|| Self {
            gaps: Gaps::new(bytes),
            unfolded: Box::new(unfolded(center, width)),
            largest: 0,
            limit: (1 << width) - 1,
        })
    }

    /// Fills `out` with the next symbols.
    #[inline(never)]
    pub(crate) fn read(&mut self, out: &mut [u8]) {
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

    /// Whether all bytes were used, and all symbols were below `1 << width`.
    pub(crate) fn finish(&self) -> bool {
        self.largest <= self.limit && self.gaps.finish()
    }
}
