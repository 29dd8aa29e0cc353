//! Signed levels, mostly zero, as one plane. Under context coding the plane is a varint with the length of its stream,
//! then the stream ([`super::context`]); under other codes it is a [`super::sparse`] plane.

use crate::code::context;
use crate::code::context::levels::LevelsDecoder;
use crate::code::method::Code;
use crate::code::sparse::{self, SparseLevels, SparsePlane};
use crate::error::Error;
use crate::layout::Shape;
use crate::math;
use crate::wire::{Reader, Writer};

// Magnitudes below this are counted in a table; larger ones are rare.
const COUNTED: usize = 128;
// Levels tested for zero at once: a group of zeros costs one test.
const GROUP: usize = 16;

/// Appends the plane of `levels` (magnitudes below 2^31) and returns their order-0 entropy in bytes. `shape` is the
/// shape of `levels`; context coders use the neighbors in it.
pub(crate) fn encode_levels(levels: &[i32], shape: Shape, code: Code, out: &mut Vec<u8>) -> f64 {
    if code == Code::Context {
        let mut stream = Vec::new();
        context::levels::encode_levels(levels, shape, &mut stream);
        write_stream(&stream, &mut Writer::new(out));
    } else {
        sparse::encode(levels, shape, code, out);
    }
    entropy(levels, levels.len())
}

/// Appends the plane of a stream of context coding.
pub(crate) fn write_stream(stream: &[u8], out: &mut Writer<'_>) {
    out.varint(stream.len() as u64);
    out.bytes(stream);
}

/// Order-0 entropy in bytes of `len` levels: `levels`, and zeros.
pub(crate) fn entropy(levels: &[i32], len: usize) -> f64 {
    let mut counts = Counts::new();
    counts.add(levels);
    counts.near[COUNTED] += (len - levels.len()) as u64;
    counts.total = len as u64;
    counts.entropy()
}

struct Counts {
    near: [u64; 2 * COUNTED],
    /// The levels outside the table.
    far: Vec<i32>,
    total: u64,
}

impl Counts {
    fn new() -> Self {
        Self {
            near: [0; 2 * COUNTED],
            far: Vec::new(),
            total: 0,
        }
    }

    fn add(&mut self, levels: &[i32]) {
        self.total += levels.len() as u64;
        for group in levels.chunks(GROUP) {
            if group.iter().fold(0, |any, level| any | level) == 0 {
                self.near[COUNTED] += group.len() as u64;
                continue;
            }
            for &level in group {
                match self.near.get_mut(level.wrapping_add(COUNTED as i32) as usize) {
                    Some(count) => *count += 1,
                    None => self.far.push(level),
                }
            }
        }
    }

    fn entropy(mut self) -> f64 {
        self.far.sort_unstable();
        let far = self.far.chunk_by(|a, b| a == b).map(|run| run.len() as u64);
        let counts = self.near.into_iter().chain(far).filter(|&count| count > 0);
        let bits = counts.map(|count| count as f64 * math::log2(self.total as f64 / count as f64));
        bits.sum::<f64>() / 8.0
    }
}

/// A plane of levels, still encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LevelPlane<'a> {
    Sparse(SparsePlane<'a>),
    Context {
        bytes: &'a [u8],
        shape: Shape,
        offset: usize,
    },
}

impl<'a> LevelPlane<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, shape: Shape, code: Code) -> Result<Self, Error> {
        if code != Code::Context {
            return SparsePlane::read(reader, shape, code).map(Self::Sparse);
        }
        let len = reader.varint("level stream")?;
        let len = usize::try_from(len).map_err(|_| reader.corrupt("level stream"))?;
        let offset = reader.offset();
        let bytes = reader.take(len, "level stream")?;
        Ok(Self::Context { bytes, shape, offset })
    }

    /// Order-0 entropy in bytes of the plane of `count` levels.
    pub(crate) fn bound(&self, count: usize) -> Result<f64, Error> {
        let mut levels = self.open()?;
        let mut counts = Counts::new();
        let mut block = vec![0; count.min(4096)];
        for start in (0..count).step_by(4096) {
            let block = &mut block[..(count - start).min(4096)];
            levels.read(block)?;
            counts.add(block);
        }
        Ok(counts.entropy())
    }

    pub(crate) fn open(&self) -> Result<Levels<'a>, Error> {
        Ok(match *self {
            Self::Sparse(plane) => Levels::Sparse(Box::new(plane.open()?)),
            Self::Context { bytes, shape, offset } => Levels::Context {
                levels: Box::new(LevelsDecoder::new(bytes, shape)),
                offset,
            },
        })
    }
}

#[derive(Debug)]
pub(crate) enum Levels<'a> {
    Sparse(Box<SparseLevels<'a>>),
    Context {
        levels: Box<LevelsDecoder<'a>>,
        offset: usize,
    },
}

impl Levels<'_> {
    /// Fills `out` with the next levels. All calls together may not ask for more levels than the plane has.
    pub(crate) fn read(&mut self, out: &mut [i32]) -> Result<(), Error> {
        match self {
            Self::Sparse(levels) => levels.read(out),
            Self::Context { levels, .. } => {
                out.fill(0);
                levels.read(out.len(), |at, level| out[at] = level);
                Ok(())
            }
        }
    }

    /// Succeeds if the plane holds exactly the levels that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        match self {
            Self::Sparse(levels) => levels.finish(),
            Self::Context { levels, .. } if levels.finish() => Ok(()),
            Self::Context { offset, .. } => Err(Error::Corrupt {
                what: "level stream".to_owned(),
                offset: *offset,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::KeyedRng;

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
        let rng = KeyedRng::new(3, 0);
        (0..len)
            .map(|i| {
                if rng.unit(i) < density {
                    let magnitude = 1 - rng.unit(len + i).max(1e-6).ln() as i32;
                    magnitude * if rng.bits(2 * len + i).is_multiple_of(2) { 1 } else { -1 }
                } else {
                    0
                }
            })
            .collect()
    }

    #[test]
    fn any_levels_round_trip() {
        for code in Code::ALL.iter().copied() {
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
        for code in Code::ALL.iter().copied() {
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
        assert!(
            decode(&[0xad, 2], Code::Pack).is_err(),
            "more nonzero levels than levels"
        );
    }
}
