//! Signed levels, mostly zero: the support, then the nonzero values.
//!
//! The plane is a varint k, the number of nonzero levels. If 0 < k < all, an index plane with their places follows. If
//! k > 0, a symbol plane of tokens follows, then a varint with the length in bytes of the extra bits, then those bytes.
//! The token is that of [`super::tokens`] for the zig-zag number of the level, less one as zero cannot occur: 0 for -1,
//! 1 for 1, 2 for -2, and so on.

use crate::code::bits::{BitReader, BitWriter};
use crate::code::gaps::{IndexPlane, Indices, encode_indices};
use crate::code::method::Code;
use crate::code::symbols::{SymbolPlane, Symbols, encode_symbols};
use crate::code::tokens::{self, WIDTH};
use crate::error::Error;
use crate::layout::Shape;
use crate::wire::{Reader, Writer};

// Levels tested for zero at once: a group of zeros costs one test.
const GROUP: usize = 16;
// Nonzero levels decoded at a time, so that their memory does not grow with the plane.
const PORTION: usize = 1024;

/// Appends the plane of `levels` (magnitudes below 2^31). `shape` is the shape of `levels`; context coders use the
/// neighbors in it.
pub(crate) fn encode(levels: &[i32], shape: Shape, code: Code, out: &mut Vec<u8>) {
    debug_assert_eq!(levels.len(), shape.len());
    let (places, kept) = gather(levels);
    Writer::new(out).varint(kept.len() as u64);
    if !kept.is_empty() {
        if kept.len() < levels.len() {
            encode_indices(&places, shape, code, out);
        }
        encode_kept(&kept, code, out);
    }
}

/// Places and values of the nonzero levels.
#[inline(never)]
fn gather(levels: &[i32]) -> (Vec<u32>, Vec<i32>) {
    let mut places = Vec::new();
    let mut kept = Vec::new();
    let mut some_places = [0; GROUP];
    let mut some_kept = [0; GROUP];
    for (start, group) in (0..).step_by(GROUP).zip(levels.chunks(GROUP)) {
        if group.iter().fold(0, |any, level| any | level) == 0 {
            continue;
        }
        let mut count = 0;
        for (at, &level) in group.iter().enumerate() {
            some_places[count] = start + at as u32;
            some_kept[count] = level;
            count += usize::from(level != 0);
        }
        places.extend_from_slice(&some_places[..count]);
        kept.extend_from_slice(&some_kept[..count]);
    }
    (places, kept)
}

fn encode_kept(kept: &[i32], code: Code, out: &mut Vec<u8>) {
    let numbers = || kept.iter().map(|&level| zig_zag(level).wrapping_sub(1));
    let symbols: Vec<u8> = numbers().map(tokens::token).collect();
    encode_symbols(&symbols, WIDTH, code, out);
    let mut extra = Vec::new();
    let mut bits = BitWriter::new(&mut extra);
    for (number, &token) in numbers().zip(&symbols) {
        let count = tokens::extra_bits(token);
        bits.put(number & ((1 << count) - 1), count);
    }
    bits.finish();
    let mut writer = Writer::new(out);
    writer.varint(extra.len() as u64);
    writer.bytes(&extra);
}

fn zig_zag(level: i32) -> u32 {
    ((level << 1) ^ (level >> 31)) as u32
}

fn from_zig_zag(number: u32) -> i32 {
    (number >> 1) as i32 ^ -((number & 1) as i32)
}

/// A plane of levels, still encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SparsePlane<'a> {
    kept: usize,
    places: Option<IndexPlane<'a>>,
    values: Option<(SymbolPlane<'a>, &'a [u8])>,
    offset: usize,
}

impl<'a> SparsePlane<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, shape: Shape, code: Code) -> Result<Self, Error> {
        let len = shape.len();
        let kept = reader.varint("number of levels")?;
        let kept = usize::try_from(kept).ok().filter(|&kept| kept <= len);
        let kept = kept.ok_or_else(|| reader.corrupt("number of levels"))?;
        let places = if kept > 0 && kept < len {
            Some(IndexPlane::read(reader, kept, shape, code)?)
        } else {
            None
        };
        let values = if kept > 0 {
            let tokens = SymbolPlane::read(reader, kept, WIDTH, code)?;
            let bytes = reader.varint("level bits")?;
            let bytes = usize::try_from(bytes).map_err(|_| reader.corrupt("level bits"))?;
            Some((tokens, reader.take(bytes, "level bits")?))
        } else {
            None
        };
        Ok(Self {
            kept,
            places,
            values,
            offset: reader.offset(),
        })
    }

    pub(crate) fn open(&self) -> Result<SparseLevels<'a>, Error> {
        let kept = match self.values {
            Some((tokens, bits)) => Some(NonzeroReader {
                tokens: tokens.open()?,
                bits: BitReader::new(bits),
            }),
            None => None,
        };
        let places = self.places.as_ref().map(IndexPlane::open).transpose()?;
        let room = if places.is_some() { PORTION.min(self.kept) } else { 0 };
        Ok(SparseLevels {
            kept,
            left: self.kept,
            places,
            at: 0,
            next: 0,
            held_places: vec![0; room],
            held_levels: vec![0; room],
            start: 0,
            offset: self.offset,
        })
    }
}

#[derive(Debug)]
pub(crate) struct SparseLevels<'a> {
    kept: Option<NonzeroReader<'a>>,
    /// Nonzero levels that are not decoded yet.
    left: usize,
    places: Option<Indices<'a>>,
    /// Place of the next level to return.
    start: usize,
    /// Buffered: `held_places[next..at]` and the levels there.
    held_places: Vec<u32>,
    held_levels: Vec<i32>,
    next: usize,
    at: usize,
    offset: usize,
}

#[derive(Debug)]
struct NonzeroReader<'a> {
    tokens: Symbols<'a>,
    bits: BitReader<'a>,
}

impl SparseLevels<'_> {
    /// Fills `out` with the next levels. All calls together may not ask for more levels than the plane has.
    pub(crate) fn read(&mut self, out: &mut [i32]) -> Result<(), Error> {
        let Some(kept) = &mut self.kept else {
            out.fill(0);
            return Ok(());
        };
        let Some(places) = &mut self.places else {
            self.left -= out.len();
            kept.read(out);
            return Ok(());
        };
        out.fill(0);
        let end = self.start + out.len();
        loop {
            while let Some(&place) = self.held_places[..self.at].get(self.next) {
                if place as usize >= end {
                    self.start = end;
                    return Ok(());
                }
                out[place as usize - self.start] = self.held_levels[self.next];
                self.next += 1;
            }
            if self.left == 0 {
                self.start = end;
                return Ok(());
            }
            self.at = self.left.min(PORTION);
            self.next = 0;
            self.left -= self.at;
            places.read(&mut self.held_places[..self.at])?;
            kept.read(&mut self.held_levels[..self.at]);
        }
    }

    /// Succeeds if the plane holds exactly the levels that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        if let Some(places) = &self.places {
            places.finish()?;
        }
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        kept.tokens.finish()?;
        if self.left == 0 && self.next == self.at && kept.bits.finish() {
            return Ok(());
        }
        Err(Error::Corrupt {
            what: "level bits".to_owned(),
            offset: self.offset,
        })
    }
}

impl NonzeroReader<'_> {
    fn read(&mut self, out: &mut [i32]) {
        let mut tokens = [0; PORTION];
        for part in out.chunks_mut(PORTION) {
            let tokens = &mut tokens[..part.len()];
            self.tokens.read(tokens);
            for (level, &token) in part.iter_mut().zip(&*tokens) {
                let number = tokens::token_base(token) | self.bits.take(tokens::extra_bits(token));
                *level = from_zig_zag(number.wrapping_add(1));
            }
        }
    }
}
