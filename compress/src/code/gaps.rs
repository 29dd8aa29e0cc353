//! The support of a sparse tensor (its ascending indices) as gaps; lossless, by the shorter of two coders.
//!
//! The plane is a varint `bytes * 2 + coder`, then that many bytes. Coder 0 is [`super::rice`]. Coder 1 depends on the
//! code of the recipe: flags in the shape of the tensor under [`Code::Context`], [`super::tokens`] under the others.

use crate::code::coder::IndexCoding;
use crate::code::context::support::{Decoder as SupportDecoder, encode as encode_support};
use crate::code::method::Code;
use crate::code::{rice, tokens};
use crate::error::Error;
use crate::layout::Shape;
use crate::math;
use crate::wire::{Reader, Writer};

/// Appends the plane of `indices`: ascending, below `shape.len()`, not empty.
pub(crate) fn encode_indices(indices: &[u32], shape: Shape, code: Code, out: &mut Vec<u8>) {
    let previous = std::iter::once(0).chain(indices.iter().map(|&index| index + 1));
    let gaps: Vec<u32> = indices
        .iter()
        .zip(previous)
        .map(|(&index, previous)| index - previous)
        .collect();
    let mut best = Vec::new();
    rice::encode(&gaps, &mut best);
    let mut coder = 0;
    let mut other = Vec::new();
    match code.entry().indices {
        IndexCoding::Rice => {}
        IndexCoding::Tokens => tokens::encode(&gaps, code, &mut other),
        IndexCoding::Flags => encode_support(indices, shape, &mut other),
    }
    if !other.is_empty() && other.len() < best.len() {
        (best, coder) = (other, 1);
    }
    let mut writer = Writer::new(out);
    writer.varint(best.len() as u64 * 2 + coder);
    writer.bytes(&best);
}

/// Lower bound in bits on a support of `kept` of `len` places, if all supports are equally likely: `len * h(kept /
/// len)`.
pub(crate) fn support_bound(len: usize, kept: usize) -> f64 {
    let part = |count: usize| {
        if count == 0 {
            0.0
        } else {
            count as f64 * math::log2(len as f64 / count as f64)
        }
    };
    part(kept) + part(len - kept)
}

/// The support of a section, still encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexPlane<'a> {
    body: &'a [u8],
    coder: Coder,
    offset: usize,
    kept: usize,
    shape: Shape,
}

#[derive(Debug, Clone, Copy)]
enum Coder {
    Rice,
    Tokens(Code),
    Flags,
}

impl<'a> IndexPlane<'a> {
    /// Reads the plane of `kept` indices below `shape.len()`.
    pub(crate) fn read(reader: &mut Reader<'a>, kept: usize, shape: Shape, code: Code) -> Result<Self, Error> {
        let head = reader.varint("index plane")?;
        let coder = match (head % 2, code.entry().indices) {
            (0, _) => Coder::Rice,
            (_, IndexCoding::Tokens) => Coder::Tokens(code),
            (_, IndexCoding::Flags) => Coder::Flags,
            // Early frames (only rANS and pack existed) combine packed values with rANS tokens.
            (_, IndexCoding::Rice) if code == Code::Pack => Coder::Tokens(Code::Rans),
            (_, IndexCoding::Rice) => return Err(reader.corrupt("index plane")),
        };
        let offset = reader.offset();
        let bytes = usize::try_from(head / 2).map_err(|_| reader.corrupt("index plane"))?;
        Ok(Self {
            body: reader.take(bytes, "index plane")?,
            coder,
            offset,
            kept,
            shape,
        })
    }

    pub(crate) fn open(&self) -> Result<Indices<'a>, Error> {
        let places =
            match self.coder {
                Coder::Rice => Places::Rice(rice::Decoder::new(self.body)),
                Coder::Tokens(code) => Places::Tokens(tokens::Decoder::new(self.body, self.kept, code).map_err(
                    |_| Error::Corrupt {
                        what: "gap tokens".to_owned(),
                        offset: self.offset,
                    },
                )?),
                Coder::Flags => Places::Flags(SupportDecoder::new(self.body, self.shape)),
            };
        Ok(Indices {
            places,
            next: 0,
            len: self.shape.len() as u64,
            offset: self.offset,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Indices<'a> {
    places: Places<'a>,
    next: u64,
    len: u64,
    offset: usize,
}

#[derive(Debug)]
enum Places<'a> {
    Rice(rice::Decoder<'a>),
    Tokens(tokens::Decoder<'a>),
    Flags(SupportDecoder<'a>),
}

impl Indices<'_> {
    /// Fills `out` with the next indices, which ascend and are below the length of the tensor.
    pub(crate) fn read(&mut self, out: &mut [u32]) -> Result<(), Error> {
        match &mut self.places {
            Places::Rice(gaps) => gaps.read(out),
            Places::Tokens(gaps) => gaps.read(out),
            Places::Flags(indices) => {
                let whole = indices.read(out);
                return whole.then_some(()).ok_or_else(|| self.corrupt("index past the tensor"));
            }
        }
        for index in out {
            let place = self.next + u64::from(*index);
            if place >= self.len {
                return Err(self.corrupt("index past the tensor"));
            }
            *index = place as u32;
            self.next = place + 1;
        }
        Ok(())
    }

    /// Succeeds if the plane holds exactly the indices that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let whole = match &self.places {
            Places::Rice(gaps) => gaps.finish(),
            Places::Tokens(gaps) => gaps.finish(),
            Places::Flags(indices) => indices.finish(),
        };
        if whole {
            Ok(())
        } else {
            Err(self.corrupt("index plane"))
        }
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::Corrupt {
            what: what.to_owned(),
            offset: self.offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::KeyedRng;

    fn decode(bytes: &[u8], kept: usize, shape: Shape, code: Code) -> Result<Vec<u32>, Error> {
        let mut reader = Reader::new(bytes);
        let mut open = IndexPlane::read(&mut reader, kept, shape, code)?.open()?;
        reader.finish("end")?;
        let mut out = vec![0; kept];
        out.chunks_mut(1500).try_for_each(|part| open.read(part))?;
        open.finish().map(|()| out)
    }

    fn round_trip(indices: &[u32], shape: Shape, code: Code) -> usize {
        let mut bytes = Vec::new();
        encode_indices(indices, shape, code, &mut bytes);
        assert_eq!(decode(&bytes, indices.len(), shape, code).as_deref(), Ok(indices));
        bytes.len()
    }

    fn random(len: usize, density: f32) -> Vec<u32> {
        let rng = KeyedRng::new(5, 0);
        (0..len).filter(|&i| rng.unit(i) < density).map(|i| i as u32).collect()
    }

    #[test]
    fn supports_round_trip_by_every_coder() {
        for code in Code::ALL.iter().copied() {
            round_trip(&[0], Shape::row(1), code);
            round_trip(&[u32::MAX - 1], Shape::row(u32::MAX as usize), Code::Pack);
            round_trip(&(0..5000).collect::<Vec<_>>(), Shape { rows: 50, cols: 100 }, code);
            round_trip(&[6, 7, 8, 20], Shape { rows: 7, cols: 3 }, code);
            let sparse = random(400_000, 0.02);
            for shape in [Shape::row(400_000), Shape { rows: 625, cols: 640 }] {
                let bytes = round_trip(&sparse, shape, code);
                let bound = support_bound(400_000, sparse.len()) / 8.0;
                assert!((bytes as f64) < bound * 1.02, "{code:?}: {bytes} of {bound}");
            }
        }
    }

    #[test]
    fn random_supports_are_within_half_a_percent_of_the_bound() {
        let over = |len: usize, shape, code| {
            let indices = random(len, 0.01);
            round_trip(&indices, shape, code) as f64 / (support_bound(len, indices.len()) / 8.0)
        };
        for shape in [Shape::row(1_000_000), Shape { rows: 1000, cols: 1000 }] {
            let context = over(1_000_000, shape, Code::Context);
            assert!(context < 1.005, "{context}");
        }
        // More indices, so that the frequency table of the tokens does not weigh.
        let tokens = over(6_000_000, Shape::row(6_000_000), Code::Rans);
        assert!(tokens < 1.005, "{tokens}");
    }

    #[test]
    fn an_index_past_the_tensor_is_refused() {
        let mut bytes = Vec::new();
        encode_indices(&[3, 9], Shape::row(10), Code::Pack, &mut bytes);
        assert!(matches!(
            decode(&bytes, 2, Shape::row(9), Code::Pack),
            Err(Error::Corrupt { .. })
        ));
    }

    #[test]
    fn changed_bytes_never_panic_nor_leave_the_tensor() {
        let (indices, shape) = (random(20_000, 0.01), Shape { rows: 100, cols: 200 });
        for code in Code::ALL.iter().copied() {
            let mut bytes = Vec::new();
            encode_indices(&indices, shape, code, &mut bytes);
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(out) = decode(&bytes, indices.len(), shape, code) {
                    assert!(out.is_sorted_by(|a, b| a < b) && out.iter().all(|&index| index < 20_000));
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
