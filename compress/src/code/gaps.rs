//! The support of a sparse tensor: ascending indices as gaps, lossless, by whichever coder is shorter.
//!
//! The plane is a varint `bytes * 2 + coder` and as many bytes, of coder 0 ([`super::rice`]) or 1 ([`super::tokens`]).

use super::{Code, rice, tokens};
use crate::Error;
use crate::wire::{Reader, Writer};

/// Appends the plane of ascending `indices`, which are not empty.
pub(crate) fn encode_indices(indices: &[u32], code: Code, out: &mut Vec<u8>) {
    let previous = std::iter::once(0).chain(indices.iter().map(|&index| index + 1));
    let gaps: Vec<u32> = indices
        .iter()
        .zip(previous)
        .map(|(&index, previous)| index - previous)
        .collect();
    let mut best = Vec::new();
    rice::encode(&gaps, &mut best);
    let mut coder = 0;
    if code == Code::Rans {
        let mut other = Vec::new();
        tokens::encode(&gaps, &mut other);
        if other.len() < best.len() {
            (best, coder) = (other, 1);
        }
    }
    let mut writer = Writer(out);
    writer.varint(best.len() as u64 * 2 + coder);
    writer.bytes(&best);
}

/// Lower bound in bits on coding which `kept` of `len` places are kept, all being as likely: `len * h(kept / len)`.
pub(crate) fn support_bound(len: usize, kept: usize) -> f64 {
    let part = |count: usize| {
        if count == 0 {
            0.0
        } else {
            count as f64 * (len as f64 / count as f64).log2()
        }
    };
    part(kept) + part(len - kept)
}

/// The support of a section, not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexPlane<'a> {
    body: &'a [u8],
    in_tokens: bool,
    offset: usize,
    kept: usize,
    len: usize,
}

impl<'a> IndexPlane<'a> {
    /// Takes the plane of `kept` indices below `len` from the front of `reader`.
    pub(crate) fn read(reader: &mut Reader<'a>, kept: usize, len: usize) -> Result<Self, Error> {
        let head = reader.varint("index plane")?;
        let offset = reader.offset();
        let bytes = usize::try_from(head / 2).map_err(|_| reader.corrupt("index plane"))?;
        Ok(Self {
            body: reader.take(bytes, "index plane")?,
            in_tokens: head % 2 == 1,
            offset,
            kept,
            len,
        })
    }

    pub(crate) fn open(&self) -> Result<Indices<'a>, Error> {
        let gaps = if self.in_tokens {
            let corrupt = |_| Error::Corrupt {
                what: "gap tokens".to_owned(),
                offset: self.offset,
            };
            Gaps::Tokens(tokens::Decoder::new(self.body, self.kept).map_err(corrupt)?)
        } else {
            Gaps::Rice(rice::Decoder::new(self.body))
        };
        Ok(Indices {
            gaps,
            next: 0,
            len: self.len as u64,
            offset: self.offset,
        })
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
    Tokens(tokens::Decoder<'a>),
}

impl Indices<'_> {
    /// Fills `out` with the next indices: ascending, each below the length of the tensor.
    pub(crate) fn read(&mut self, out: &mut [u32]) -> Result<(), Error> {
        match &mut self.gaps {
            Gaps::Rice(gaps) => gaps.read(out),
            Gaps::Tokens(gaps) => gaps.read(out),
        }
        for index in out {
            let place = self.next + u64::from(*index);
            if place >= self.len {
                return Err(Error::Corrupt {
                    what: "index past the tensor".to_owned(),
                    offset: self.offset,
                });
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
            Gaps::Tokens(gaps) => gaps.finish(),
        };
        if whole {
            Ok(())
        } else {
            Err(Error::Corrupt {
                what: "index plane".to_owned(),
                offset: self.offset,
            })
        }
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
    fn supports_round_trip_by_both_coders() {
        for code in [Code::Pack, Code::Rans] {
            round_trip(&[0], 1, code);
            round_trip(&[u32::MAX - 1], u32::MAX as usize, code);
            round_trip(&(0..5000).collect::<Vec<_>>(), 5000, code);
            let draws = Draws::new(5, 0);
            let sparse: Vec<u32> = (0..400_000)
                .filter(|&i| draws.unit(i) < 0.02)
                .map(|i| i as u32)
                .collect();
            let bytes = round_trip(&sparse, 400_000, code);
            assert!(
                (bytes as f64) < support_bound(400_000, sparse.len()) / 8.0 * 1.02,
                "{bytes}"
            );
        }
    }

    #[test]
    fn an_index_past_the_tensor_is_refused() {
        let mut bytes = Vec::new();
        encode_indices(&[3, 9], Code::Pack, &mut bytes);
        let mut open = IndexPlane::read(&mut Reader::new(&bytes), 2, 9)
            .unwrap()
            .open()
            .unwrap();
        assert!(matches!(open.read(&mut [0; 2]), Err(Error::Corrupt { .. })));
    }
}
