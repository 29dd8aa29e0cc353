//! Signed levels, most of them zero.
//!
//! Under [`Code::Context`] the plane is a varint, the length in bytes of what [`super::context`] makes of the matrix of
//! levels, and as many bytes. Under any other code it says which places are not zero, then what they hold: a varint k, the
//! number of levels that are not zero; if k is neither 0 nor all, their places as an index plane; if k is not 0, a symbol
//! plane of tokens and the bits behind them: a varint, their length in bytes, and as many bytes. The token is that of
//! [`super::tokens`] for the level's zig-zag number without zero: 0 for -1, 1 for 1, 2 for -2, and so on.

use super::bits::{BitReader, BitWriter};
use super::gaps::Indices;
use super::tokens::{self, WIDTH};
use super::{Code, IndexPlane, SymbolPlane, Symbols, context, encode_indices, encode_symbols};
use crate::Error;
use crate::layout::Shape;
use crate::wire::{Reader, Writer};

/// Levels tested at a time; a group of zeros costs no more than the test.
const GROUP: usize = 16;
/// Levels decoded at a time.
const PORTION: usize = 1024;
/// Magnitudes counted by table; larger ones are few.
const COUNTED: usize = 128;

/// Appends the plane of `levels`, whose magnitudes are below 2^31; returns their order-0 entropy in bytes, which only
/// [`Code::Context`] can go below. Shapes: `levels: [shape.len()]`, row-major.
pub(crate) fn encode_levels(levels: &[i32], shape: Shape, code: Code, out: &mut Vec<u8>) -> f64 {
    let (places, kept) = gather(levels);
    if code == Code::Context {
        let mut coded = Vec::new();
        context::encode_levels(levels, shape, &mut coded);
        Writer(out).varint(coded.len() as u64);
        out.append(&mut coded);
    } else {
        Writer(out).varint(kept.len() as u64);
        if !kept.is_empty() && kept.len() < levels.len() {
            encode_indices(&places, shape, code, out);
        }
        if !kept.is_empty() {
            encode_kept(&kept, code, out);
        }
    }
    entropy(levels.len(), &kept) / 8.0
}

/// Places and values of the levels that are not zero.
#[inline(never)]
fn gather(levels: &[i32]) -> (Vec<u32>, Vec<i32>) {
    let (mut places, mut kept) = (Vec::new(), Vec::new());
    let (mut some_places, mut some_kept) = ([0; GROUP], [0; GROUP]);
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
    let mut writer = Writer(out);
    writer.varint(extra.len() as u64);
    writer.bytes(&extra);
}

fn zig_zag(level: i32) -> u32 {
    ((level << 1) ^ (level >> 31)) as u32
}

fn from_zig_zag(number: u32) -> i32 {
    (number >> 1) as i32 ^ -((number & 1) as i32)
}

/// Order-0 entropy in bits of `len` levels, of which those not zero are `kept`.
fn entropy(len: usize, kept: &[i32]) -> f64 {
    let (mut counts, mut others) = ([0u64; 2 * COUNTED], Vec::new());
    for &level in kept {
        match counts.get_mut(level.wrapping_add(COUNTED as i32) as usize) {
            Some(count) => *count += 1,
            None => others.push(level),
        }
    }
    others.sort_unstable();
    let others = others.chunk_by(|a, b| a == b).map(|run| run.len() as u64);
    [(len - kept.len()) as u64]
        .into_iter()
        .chain(counts)
        .chain(others)
        .filter(|&count| count > 0)
        .map(|count| count as f64 * (len as f64 / count as f64).log2())
        .sum()
}

/// Levels, not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LevelPlane<'a> {
    body: Body<'a>,
    offset: usize,
}

#[derive(Debug, Clone, Copy)]
enum Body<'a> {
    Context(&'a [u8], Shape),
    Zeros,
    Kept {
        count: usize,
        places: Option<IndexPlane<'a>>,
        tokens: SymbolPlane<'a>,
        bits: &'a [u8],
    },
}

impl<'a> LevelPlane<'a> {
    /// Takes the plane of levels of `shape` from the front of `reader`.
    pub(crate) fn read(reader: &mut Reader<'a>, shape: Shape, code: Code) -> Result<Self, Error> {
        let offset = reader.offset();
        let body = match code {
            Code::Context => Body::Context(read_bytes(reader)?, shape),
            _ => Body::read_kept(reader, shape, code)?,
        };
        Ok(Self { body, offset })
    }

    pub(crate) fn open(&self) -> Result<Levels<'a>, Error> {
        let source = match self.body {
            Body::Context(bytes, shape) => Source::Context(Box::new(context::LevelsDecoder::new(bytes, shape))),
            Body::Zeros => Source::Zeros,
            Body::Kept {
                count,
                places,
                tokens,
                bits,
            } => {
                let kept = Kept {
                    tokens: tokens.open()?,
                    bits: BitReader::new(bits),
                };
                match places {
                    None => Source::All(Box::new(kept)),
                    Some(places) => Source::Some(Box::new(Sparse {
                        kept,
                        left: count,
                        places: places.open()?,
                        start: 0,
                        held_places: vec![0; PORTION.min(count)],
                        held_levels: vec![0; PORTION.min(count)],
                        next: 0,
                        end: 0,
                    })),
                }
            }
        };
        Ok(Levels {
            source,
            offset: self.offset,
        })
    }
}

impl<'a> Body<'a> {
    fn read_kept(reader: &mut Reader<'a>, shape: Shape, code: Code) -> Result<Self, Error> {
        let count = reader.varint("number of levels")?;
        let count = usize::try_from(count).ok().filter(|&count| count <= shape.len());
        let count = count.ok_or_else(|| reader.corrupt("number of levels"))?;
        if count == 0 {
            return Ok(Self::Zeros);
        }
        let places = if count < shape.len() {
            Some(IndexPlane::read(reader, count, shape, code)?)
        } else {
            None
        };
        Ok(Self::Kept {
            count,
            places,
            tokens: SymbolPlane::read(reader, count, WIDTH, code)?,
            bits: read_bytes(reader)?,
        })
    }
}

fn read_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Error> {
    let bytes = reader.varint("length of levels")?;
    let bytes = usize::try_from(bytes).map_err(|_| reader.corrupt("length of levels"))?;
    reader.take(bytes, "levels")
}

/// Takes levels from the front of a plane.
#[derive(Debug)]
pub(crate) struct Levels<'a> {
    source: Source<'a>,
    offset: usize,
}

#[derive(Debug)]
enum Source<'a> {
    Context(Box<context::LevelsDecoder<'a>>),
    Zeros,
    All(Box<Kept<'a>>),
    Some(Box<Sparse<'a>>),
}

impl Levels<'_> {
    /// Fills `out` with the next levels; in all no more than were read for.
    pub(crate) fn read(&mut self, out: &mut [i32]) -> Result<(), Error> {
        match &mut self.source {
            Source::Context(levels) => levels.read(out),
            Source::Zeros => out.fill(0),
            Source::All(kept) => kept.read(out),
            Source::Some(levels) => return levels.read(out),
        }
        Ok(())
    }

    /// Succeeds if the plane held exactly the levels that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let whole = match &self.source {
            Source::Context(levels) => levels.finish(),
            Source::Zeros => true,
            Source::All(kept) => kept.finish()?,
            Source::Some(levels) => levels.finish()?,
        };
        whole.then_some(()).ok_or_else(|| Error::Corrupt {
            what: "levels".to_owned(),
            offset: self.offset,
        })
    }
}

/// Levels at some places, zeros elsewhere.
#[derive(Debug)]
struct Sparse<'a> {
    kept: Kept<'a>,
    /// Levels that are not zero and not decoded yet.
    left: usize,
    places: Indices<'a>,
    /// Place of the next level that is read.
    start: usize,
    /// Decoded ahead: `held_places[next..end]` and their levels.
    held_places: Vec<u32>,
    held_levels: Vec<i32>,
    next: usize,
    end: usize,
}

impl Sparse<'_> {
    fn read(&mut self, out: &mut [i32]) -> Result<(), Error> {
        out.fill(0);
        let start = self.start;
        self.start += out.len();
        loop {
            for (&place, &level) in self.held_places[self.next..self.end]
                .iter()
                .zip(&self.held_levels[self.next..])
            {
                let Some(out) = out.get_mut(place as usize - start) else {
                    return Ok(());
                };
                *out = level;
                self.next += 1;
            }
            if self.left == 0 {
                return Ok(());
            }
            self.end = self.left.min(PORTION);
            self.next = 0;
            self.left -= self.end;
            self.places.read(&mut self.held_places[..self.end])?;
            self.kept.read(&mut self.held_levels[..self.end]);
        }
    }

    fn finish(&self) -> Result<bool, Error> {
        self.places.finish()?;
        Ok(self.left == 0 && self.next == self.end && self.kept.finish()?)
    }
}

/// The levels that are not zero.
#[derive(Debug)]
struct Kept<'a> {
    tokens: Symbols<'a>,
    bits: BitReader<'a>,
}

impl Kept<'_> {
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

    fn finish(&self) -> Result<bool, Error> {
        self.tokens.finish()?;
        Ok(self.bits.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Draws;

    const CODES: [Code; 5] = [Code::Pack, Code::Rans, Code::Rice, Code::Huffman, Code::Context];

    fn round_trip(levels: &[i32], code: Code) -> (usize, f64) {
        let (mut bytes, shape) = (Vec::new(), Shape::row(levels.len()));
        let bound = encode_levels(levels, shape, code, &mut bytes);
        let mut reader = Reader::new(&bytes);
        let plane = LevelPlane::read(&mut reader, shape, code).unwrap();
        assert_eq!(reader.finish("end"), Ok(()));
        for portion in [1, 100, 4096] {
            let (mut open, mut out) = (plane.open().unwrap(), vec![7; levels.len()]);
            out.chunks_mut(portion).for_each(|part| open.read(part).unwrap());
            assert_eq!(out, levels);
            assert_eq!(open.finish(), Ok(()));
        }
        (bytes.len(), bound)
    }

    fn sparse(len: usize, density: f32) -> Vec<i32> {
        let draws = Draws::new(3, 0);
        (0..len)
            .map(|i| {
                if draws.unit(i) < density {
                    let magnitude = 1 - draws.unit(len + i).max(1e-6).ln() as i32;
                    magnitude
                        * if draws.bits(2 * len + i).is_multiple_of(2) {
                            1
                        } else {
                            -1
                        }
                } else {
                    0
                }
            })
            .collect()
    }

    #[test]
    #[ignore = "a measurement"]
    fn speed() {
        let levels = sparse(10_000_000, 0.03);
        for _ in 0..2 {
            let start = std::time::Instant::now();
            let (places, kept) = gather(&levels);
            println!("gather {:?}", start.elapsed());
            let start = std::time::Instant::now();
            encode_indices(&places, Shape::row(levels.len()), Code::Rans, &mut Vec::new());
            println!("indices {:?}", start.elapsed());
            let start = std::time::Instant::now();
            encode_kept(&kept, Code::Rans, &mut Vec::new());
            println!("kept {:?}", start.elapsed());
            let start = std::time::Instant::now();
            entropy(levels.len(), &kept);
            println!("entropy {:?}", start.elapsed());
        }
    }

    #[test]
    fn any_levels_round_trip() {
        for code in CODES {
            round_trip(&[], code);
            round_trip(&[0], code);
            round_trip(&[-1], code);
            round_trip(&[0; 5000], code);
            round_trip(&[i32::MAX, -i32::MAX, 0, 1, -1, 1 << 20], code);
            round_trip(&(-3000..3000).collect::<Vec<_>>(), code);
            round_trip(&(1..3000).collect::<Vec<_>>(), code);
            round_trip(&sparse(20_000, 0.1), code);
        }
    }

    #[test]
    fn the_size_is_near_the_entropy() {
        for density in [0.01, 0.1, 0.5] {
            let (bytes, bound) = round_trip(&sparse(200_000, density), Code::Rans);
            assert!((bytes as f64) < bound * 1.03 + 40.0, "{bytes} {bound}");
        }
    }

    #[test]
    fn truncations_are_refused_and_flips_are_survived() {
        let levels = sparse(300, 0.2);
        let decode = |bytes: &[u8], code| {
            let mut reader = Reader::new(bytes);
            let plane = LevelPlane::read(&mut reader, Shape::row(300), code)?;
            reader.finish("end")?;
            let (mut open, mut out) = (plane.open()?, [0; 300]);
            out.chunks_mut(70).try_for_each(|part| open.read(part))?;
            open.finish()
        };
        for code in CODES {
            let mut bytes = Vec::new();
            encode_levels(&levels, Shape::row(300), code, &mut bytes);
            assert_eq!(decode(&bytes, code), Ok(()));
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut], code).is_err());
            }
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let _ = decode(&bytes, code);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert!(decode(&[0xad, 2], Code::Pack).is_err(), "more than there are");
    }
}
