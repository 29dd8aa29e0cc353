//! Bit packing: symbols of 1 to 8 bits, lowest bit first. Eight symbols take `width` bytes.

use crate::code::coder::{Entry, IndexCoding, SymbolReader};

/// Size in bytes of `count` packed symbols of `width` bits.
pub(crate) fn packed_len(count: usize, width: u32) -> usize {
    (count as u64 * u64::from(width)).div_ceil(8) as usize
}

pub(crate) const METHOD: Entry = Entry {
    name: "pack",
    // Planes are packed where no coder is shorter, so packing is never an attempt.
    encode: |_, _| false,
    open: |bytes, width| Some(Box::new(Unpacker::new(bytes, width))),
    indices: IndexCoding::Rice,
};

/// Appends `symbols`, each below `1 << width`.
pub(crate) fn pack(symbols: &[u8], width: u32, out: &mut Vec<u8>) {
    if width == 8 {
        return out.extend_from_slice(symbols);
    }
    let word = |group: &[u8]| {
        let symbols = group.iter().rev();
        symbols.fold(0u64, |word, &symbol| word << width | u64::from(symbol))
    };
    out.reserve(packed_len(symbols.len(), width));
    let (groups, rest) = symbols.as_chunks::<8>();
    for group in groups {
        out.extend_from_slice(&word(group).to_le_bytes()[..width as usize]);
    }
    out.extend_from_slice(&word(rest).to_le_bytes()[..packed_len(rest.len(), width)]);
}

#[derive(Debug)]
pub(crate) struct Unpacker<'a> {
    bytes: &'a [u8],
    width: u32,
    held: u64,
    left: u32,
}

impl<'a> Unpacker<'a> {
    pub(crate) fn new(bytes: &'a [u8], width: u32) -> Self {
        Self {
            bytes,
            width,
            held: 0,
            left: 0,
        }
    }
}

impl SymbolReader for Unpacker<'_> {
    /// Fills `out`. The caller checks that the plane has that many symbols.
    fn read(&mut self, out: &mut [u8]) {
        if self.width == 8 {
            let (now, rest) = self.bytes.split_at(out.len());
            out.copy_from_slice(now);
            self.bytes = rest;
            return;
        }
        let mask = (1u64 << self.width) - 1;
        let (groups, tail) = out.split_at_mut(if self.left == 0 { out.len() / 8 * 8 } else { 0 });
        for group in groups.as_chunks_mut::<8>().0 {
            let word = self.group();
            for (at, symbol) in group.iter_mut().enumerate() {
                *symbol = (word >> (at as u32 * self.width) & mask) as u8;
            }
        }
        for symbol in tail {
            if self.left == 0 {
                self.held = self.group();
                self.left = 8;
            }
            *symbol = (self.held & mask) as u8;
            self.held >>= self.width;
            self.left -= 1;
        }
    }

    fn finish(&self) -> bool {
        self.bytes.is_empty() && self.held == 0
    }
}

impl Unpacker<'_> {
    #[inline]
    fn group(&mut self) -> u64 {
        let mut word = [0; 8];
        let (now, rest) = self.bytes.split_at(self.bytes.len().min(self.width as usize));
        word[..now.len()].copy_from_slice(now);
        self.bytes = rest;
        u64::from_le_bytes(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_round_trips_in_any_portions() {
        for width in 1..=8u32 {
            for count in [0usize, 1, 7, 8, 9, 100, 1000] {
                let symbols: Vec<u8> = (0..count).map(|i| ((i * 73 + 5) % (1 << width)) as u8).collect();
                let mut bytes = Vec::new();
                pack(&symbols, width, &mut bytes);
                assert_eq!(bytes.len(), packed_len(count, width));
                let mut reader = Unpacker::new(&bytes, width);
                let mut out = vec![0; count];
                out.chunks_mut(37).for_each(|portion| reader.read(portion));
                assert_eq!(out, symbols);
                assert!(reader.finish());
            }
        }
    }
}
