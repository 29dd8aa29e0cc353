//! Words of several bytes: uncoded under pack, else split into one plane per byte, so that exponents and mantissas are
//! coded separately.

use crate::code::method::Code;
use crate::code::symbols::{SymbolPlane, Symbols, encode_symbols};
use crate::error::Error;
use crate::wire::Reader;

/// Appends little-endian `words`; returns their lower bound in bytes (see [`encode_symbols`]).
pub(crate) fn encode_words<const W: usize>(
    words: impl ExactSizeIterator<Item = [u8; W]> + Clone,
    code: Code,
    out: &mut Vec<u8>,
) -> f64 {
    match code {
        Code::Pack => {
            let bytes = words.len() * W;
            out.reserve(bytes);
            words.for_each(|word| out.extend_from_slice(&word));
            bytes as f64
        }
        _ => (0..W)
            .map(|place| {
                let plane: Vec<u8> = words.clone().map(|word| word[place]).collect();
                encode_symbols(&plane, 8, code, out)
            })
            .sum(),
    }
}

/// A plane of words, still encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WordPlane<'a, const W: usize> {
    Whole(&'a [[u8; W]]),
    Planes([SymbolPlane<'a>; W]),
}

impl<'a, const W: usize> WordPlane<'a, W> {
    pub(crate) fn read(reader: &mut Reader<'a>, count: usize, code: Code) -> Result<Self, Error> {
        match code {
            Code::Pack => {
                let bytes = count.checked_mul(W).ok_or_else(|| reader.corrupt("values"))?;
                Ok(Self::Whole(reader.take(bytes, "values")?.as_chunks().0))
            }
            _ => {
                let first = SymbolPlane::read(reader, count, 8, code)?;
                let mut planes = [first; W];
                for plane in &mut planes[1..] {
                    *plane = SymbolPlane::read(reader, count, 8, code)?;
                }
                Ok(Self::Planes(planes))
            }
        }
    }

    /// Lower bound in bytes of the plane of `count` words under `code`.
    pub(crate) fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        match self {
            Self::Whole(words) => Ok((words.len() * W) as f64),
            Self::Planes(planes) => planes.iter().map(|plane| plane.bound(count, code)).sum(),
        }
    }

    pub(crate) fn open(&self) -> Result<Words<'a, W>, Error> {
        Ok(match self {
            Self::Whole(words) => Words::Whole(words),
            Self::Planes(planes) => Words::Planes(planes.iter().map(SymbolPlane::open).collect::<Result<_, _>>()?),
        })
    }
}

#[derive(Debug)]
pub(crate) enum Words<'a, const W: usize> {
    Whole(&'a [[u8; W]]),
    Planes(Vec<Symbols<'a>>),
}

impl<const W: usize> Words<'_, W> {
    /// The next `scratch.len()` words. All calls together may not ask for more words than the plane has.
    pub(crate) fn next<'s>(&'s mut self, scratch: &'s mut [[u8; W]]) -> &'s [[u8; W]] {
        match self {
            Self::Whole(words) => {
                let (now, rest) = words.split_at(scratch.len());
                *words = rest;
                now
            }
            Self::Planes(planes) => {
                let mut bytes = [0; 1024];
                for part in scratch.chunks_mut(bytes.len()) {
                    for (place, plane) in planes.iter_mut().enumerate() {
                        plane.read(&mut bytes[..part.len()]);
                        part.iter_mut().zip(&bytes).for_each(|(word, &byte)| word[place] = byte);
                    }
                }
                scratch
            }
        }
    }

    /// Succeeds if the plane holds exactly the words that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        match self {
            Self::Whole(_) => Ok(()),
            Self::Planes(planes) => planes.iter().try_for_each(Symbols::finish),
        }
    }
}
