//! Gaps as tokens and extra bits. The token (at most 7 bits) holds the magnitude of the gap and the two bits after its
//! leading one, and is entropy coded; the remaining bits follow uncoded. Shorter than [`super::rice`] if the gaps are
//! far from geometric.
//!
//! A symbol plane of all tokens comes first, then all extra bits.

use crate::code::bits::{BitReader, BitWriter};
use crate::code::method::Code;
use crate::code::symbols::{SymbolPlane, Symbols, encode_symbols};
use crate::error::Error;
use crate::wire::Reader;

// The token of the largest gap, 2^32 - 1, is 16 + 27 * 4 + 3 = 127.
pub(crate) const WIDTH: u32 = 7;
// Gaps below this are equal to their token. From 16 on, two bits or more follow the token uncoded.
const DIRECT: u32 = 16;
// Tokens decoded at a time, on the stack.
const PORTION: usize = 1024;

/// Appends `gaps`, with their tokens under `code`.
pub(crate) fn encode(gaps: &[u32], code: Code, out: &mut Vec<u8>) {
    let tokens: Vec<u8> = gaps.iter().map(|&gap| token(gap)).collect();
    encode_symbols(&tokens, WIDTH, code, out);
    let mut bits = BitWriter::new(out);
    for (&gap, &token) in gaps.iter().zip(&tokens) {
        let count = extra_bits(token);
        bits.put(gap & ((1 << count) - 1), count);
    }
    bits.finish();
}

pub(crate) fn token(gap: u32) -> u8 {
    if gap < DIRECT {
        return gap as u8;
    }
    let magnitude = gap.ilog2();
    (DIRECT + (magnitude - 4) * 4 + (gap >> (magnitude - 2) & 3)) as u8
}

/// Number of extra bits of a token.
pub(crate) const fn extra_bits(token: u8) -> u32 {
    let token = token as u32;
    if token < DIRECT { 0 } else { (token - DIRECT) / 4 + 2 }
}

/// The smallest gap of a token: the gap with its extra bits zero.
pub(crate) const fn token_base(token: u8) -> u32 {
    let token = token as u32;
    if token < DIRECT {
        token
    } else {
        (4 + (token - DIRECT) % 4) << ((token - DIRECT) / 4 + 2)
    }
}

// [`token_base`] and [`extra_bits`] of each token, as a lookup table so that decoding has no unpredictable branch.
static GAPS: [(u32, u8); 1 << WIDTH] = {
    let mut gaps = [(0, 0); 1 << WIDTH];
    let mut token = 0;
    while token < gaps.len() {
        gaps[token] = (token_base(token as u8), extra_bits(token as u8) as u8);
        token += 1;
    }
    gaps
};

#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    tokens: Symbols<'a>,
    bits: BitReader<'a>,
}

impl<'a> Decoder<'a> {
    /// Opens `bytes`: `count` gaps, with their tokens under `code`.
    pub(crate) fn new(bytes: &'a [u8], count: usize, code: Code) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let tokens = SymbolPlane::read(&mut reader, count, WIDTH, code)?.open()?;
        Ok(Self {
            tokens,
            bits: BitReader::new(&bytes[reader.offset()..]),
        })
    }

    /// Fills `out` with the next gaps. All calls together may not ask for more than `count` gaps.
    pub(crate) fn read(&mut self, out: &mut [u32]) {
        let mut tokens = [0; PORTION];
        let mut bits = self.bits.clone();
        for part in out.chunks_mut(PORTION) {
            let tokens = &mut tokens[..part.len()];
            self.tokens.read(tokens);
            for (gap, &token) in part.iter_mut().zip(&*tokens) {
                let (base, extra) = GAPS[usize::from(token) % GAPS.len()];
                *gap = base | bits.take(u32::from(extra));
            }
        }
        self.bits = bits;
    }

    /// Whether every token and bit was consumed.
    pub(crate) fn finish(&self) -> bool {
        self.tokens.finish().is_ok() && self.bits.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_keep_every_gap() {
        for gap in (0..5000).chain([u32::MAX, u32::MAX - 1, 1 << 31, (1 << 31) - 1]) {
            let token = token(gap);
            assert!(token < 1 << WIDTH);
            assert_eq!(token_base(token) | gap & ((1 << extra_bits(token)) - 1), gap);
        }
    }
}
