//! The support of a sparse tensor: ascending indices as gaps, lossless, by whichever coder is shorter.
//!
//! The plane is a varint `bytes * 2 + coder` and as many bytes. Coder 0 is [`super::rice`]. Coder 1 writes each gap as a
//! token of at most 7 bits (its magnitude and next two bits), a plane of its own, followed by the remaining bits.

use super::bits::{BitReader, BitWriter};
use super::{Code, Symbols, SymbolPlane, encode_symbols, rice};
use crate::Error;
use crate::wire::{Reader, Writer};

const TOKEN_WIDTH: u32 = 7;
/// Gaps below this are their own token.
const DIRECT: u32 = 16;
/// Tokens held at a time while decoding.
const PORTION: usize = 1024;

/// Appends the plane of ascending `indices`, which are not empty.
pub(crate) fn encode_indices(indices: &[u32], code: Code, out: &mut Vec<u8>) {
    let previous = std::iter::once(0).chain(indices.iter().map(|&index| index + 1));
    let gaps: Vec<u32> = indices.iter().zip(previous).map(|(&index, previous)| index - previous).collect();
    let mut best = Vec::new();
    rice::encode(&gaps, &mut best);
    let mut coder = 0;
    if code == Code::Rans {
        let tokens = encode_tokens(&gaps);
        if tokens.len() < best.len() {
            (best, coder) = (tokens, 1);
        }
    }
    let mut writer = Writer(out);
    writer.varint(best.len() as u64 * 2 + coder);
    writer.bytes(&best);
}

/// Lower bound in bits on coding which `kept` of `len` places are kept, all being as likely: `len * h(kept / len)`.
pub(crate) fn support_bound(len: usize, kept: usize) -> f64 {
    let part = |count: usize| if count == 0 { 0.0 } else { count as f64 * (len as f64 / count as f64).log2() };
    part(kept) + part(len - kept)
}

fn encode_tokens(gaps: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    let tokens: Vec<u8> = gaps.iter().map(|&gap| token(gap)).collect();
    encode_symbols(&tokens, TOKEN_WIDTH, Code::Rans, &mut out);
    let mut bits = BitWriter::new(&mut out);
    for (&gap, &token) in gaps.iter().zip(&tokens) {
        let count = extra_bits(token);
        bits.put(gap & ((1 << count) - 1), count);
    }
    bits.finish();
    out
}

fn token(gap: u32) -> u8 {
    if gap < DIRECT {
        return gap as u8;
    }
    let magnitude = gap.ilog2();
    (DIRECT + (magnitude - 4) * 4 + (gap >> (magnitude - 2) & 3)) as u8
}

/// Number of bits that follow a token.
fn extra_bits(token: u8) -> u32 {
    u32::from(token).checked_sub(DIRECT).map_or(0, |above| above / 4 + 2)
}

/// The gap without its lowest bits.
fn token_base(token: u8) -> u32 {
    u32::from(token).checked_sub(DIRECT).map_or(u32::from(token), |above| (4 + above % 4) << (above / 4 + 2))
}

/// The support of a section, not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexPlane<'a> {
    body: &'a [u8],
    offset: usize,
    tokens: Option<(SymbolPlane<'a>, &'a [u8])>,
    len: usize,
}

impl<'a> IndexPlane<'a> {
    /// Takes the plane of `kept` indices below `len` from the front of `reader`.
    pub(crate) fn read(reader: &mut Reader<'a>, kept: usize, len: usize) -> Result<Self, Error> {
        let head = reader.varint("index plane")?;
        let offset = reader.offset();
        let bytes = usize::try_from(head / 2).map_err(|_| reader.corrupt("index plane"))?;
        let body = reader.take(bytes, "index plane")?;
        let tokens = if head % 2 == 1 {
            let mut inner = Reader::new(body);
            let plane = SymbolPlane::read(&mut inner, kept, TOKEN_WIDTH, Code::Rans).map_err(|error| shift(error, offset))?;
            Some((plane.at(offset), &body[inner.offset()..]))
        } else {
            None
        };
        Ok(Self { body, offset, tokens, len })
    }

    pub(crate) fn open(&self) -> Result<Indices<'a>, Error> {
        let gaps = match self.tokens {
            None => Gaps::Rice(rice::Decoder::new(self.body)),
            Some((plane, rest)) => Gaps::Tokens(plane.open()?, BitReader::new(rest)),
        };
        Ok(Indices { gaps, next: 0, len: self.len as u64, offset: self.offset })
    }
}

/// Offsets of a part, made offsets of the whole.
fn shift(error: Error, by: usize) -> Error {
    match error {
        Error::Corrupt { what, offset } => Error::Corrupt { what, offset: offset + by },
        Error::Truncated { what, offset } => Error::Corrupt { what, offset: offset + by },
        other => other,
    }
}

/// Takes indices from the front of a plane.
#[derive(Debug)]
pub(crate) struct Indices<'a> {
    gaps: Gaps<'a>,
    next: u64,
    len: u64,
    offset: usize,
}

#[derive(Debug)]
enum Gaps<'a> {
    Rice(rice::Decoder<'a>),
    Tokens(Symbols<'a>, BitReader<'a>),
}

impl Indices<'_> {
    /// Fills `out` with the next indices: ascending, each below the length of the tensor.
    pub(crate) fn read(&mut self, out: &mut [u32]) -> Result<(), Error> {
        match &mut self.gaps {
            Gaps::Rice(gaps) => gaps.read(out),
            Gaps::Tokens(symbols, bits) => {
                let mut tokens = [0; PORTION];
                for part in out.chunks_mut(PORTION) {
                    let tokens = &mut tokens[..part.len()];
                    symbols.read(tokens);
                    for (gap, &token) in part.iter_mut().zip(&*tokens) {
                        *gap = token_base(token) | bits.take(extra_bits(token));
                    }
                }
            }
        }
        for index in out {
            let place = self.next + u64::from(*index);
            if place >= self.len {
                return Err(Error::Corrupt { what: "index past the tensor".to_owned(), offset: self.offset });
            }
            *index = place as u32;
            self.next = place + 1;
        }
        Ok(())
    }

    /// Succeeds if the plane held exactly the indices that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let whole = match &self.gaps {
            Gaps::Rice(gaps) => gaps.finish(),
            Gaps::Tokens(symbols, bits) => {
                symbols.finish()?;
                bits.finish()
            }
        };
        if whole { Ok(()) } else { Err(Error::Corrupt { what: "index plane".to_owned(), offset: self.offset }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Draws;

    fn round_trip(indices: &[u32], len: usize, code: Code) -> usize {
        let mut bytes = Vec::new();
        encode_indices(indices, code, &mut bytes);
        let mut reader = Reader::new(&bytes);
        let plane = IndexPlane::read(&mut reader, indices.len(), len).unwrap();
        assert_eq!(reader.finish("end"), Ok(()));
        let mut open = plane.open().unwrap();
        let mut out = vec![0; indices.len()];
        out.chunks_mut(1500).for_each(|part| open.read(part).unwrap());
        assert_eq!(out, indices);
        assert_eq!(open.finish(), Ok(()));
        bytes.len()
    }

    #[test]
    fn tokens_keep_every_gap() {
        for gap in (0..5000).chain([u32::MAX, u32::MAX - 1, 1 << 31, (1 << 31) - 1]) {
            let token = token(gap);
            assert!(token < 1 << TOKEN_WIDTH);
            assert_eq!(token_base(token) | gap & ((1 << extra_bits(token)) - 1), gap);
        }
    }

    #[test]
    fn supports_round_trip_by_both_coders() {
        for code in [Code::Pack, Code::Rans] {
            round_trip(&[0], 1, code);
            round_trip(&[u32::MAX - 1], u32::MAX as usize, code);
            round_trip(&(0..5000).collect::<Vec<_>>(), 5000, code);
            let draws = Draws::new(5, 0);
            let sparse: Vec<u32> = (0..400_000).filter(|&i| draws.unit(i) < 0.02).map(|i| i as u32).collect();
            let bytes = round_trip(&sparse, 400_000, code);
            assert!((bytes as f64) < support_bound(400_000, sparse.len()) / 8.0 * 1.02, "{bytes}");
        }
    }

    #[test]
    fn an_index_past_the_tensor_is_refused() {
        let mut bytes = Vec::new();
        encode_indices(&[3, 9], Code::Pack, &mut bytes);
        let mut open = IndexPlane::read(&mut Reader::new(&bytes), 2, 9).unwrap().open().unwrap();
        assert!(matches!(open.read(&mut [0; 2]), Err(Error::Corrupt { .. })));
    }
}
