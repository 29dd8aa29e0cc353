//! Third slot: symbols to bytes.
//!
//! Everything that is coded is a plane of symbols of 1 to 8 bits; wider words are cut into one plane a byte. A plane is
//! written by entropy coding only where that is shorter than its plain width, so it never grows by more than a byte.

mod bits;
mod gaps;
mod pack;
mod rans;
mod rice;
mod table;
mod tokens;
mod words;

use serde::{Deserialize, Serialize};

pub(crate) use gaps::{IndexPlane, encode_indices, support_bound};
pub(crate) use words::{WordPlane, Words, encode_words};

use crate::Error;
use crate::wire::{Reader, Writer};

/// How planes of symbols become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// At their plain width.
    #[default]
    Pack,
    /// By their frequencies, each plane on its own, where that is shorter.
    Rans,
    /// By Rice codes around the most frequent symbol.
    Rice,
    /// By prefix codes of their frequencies.
    Huffman,
    /// By adaptive binary arithmetic coding that learns from neighbours, rows and columns.
    Context,
}

/// Appends a plane of symbols below `1 << width`; returns the bytes it could not go below: its order-0 entropy, or its
/// size if it is not entropy coded.
pub(crate) fn encode_symbols(symbols: &[u8], width: u32, code: Code, out: &mut Vec<u8>) -> f64 {
    let plain = pack::packed_len(symbols.len(), width);
    if code == Code::Pack || symbols.is_empty() {
        pack::pack(symbols, width, out);
        return plain as f64;
    }
    let counts = table::histogram(symbols);
    let mut coded = Vec::new();
    if rans::encode(symbols, &counts, plain, &mut coded) {
        Writer(out).varint(coded.len() as u64);
        out.append(&mut coded);
    } else {
        Writer(out).varint(0);
        pack::pack(symbols, width, out);
    }
    table::entropy(&counts) / 8.0
}

/// A plane of symbols, not decoded yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SymbolPlane<'a> {
    bytes: &'a [u8],
    width: u32,
    packed: bool,
    offset: usize,
}

impl<'a> SymbolPlane<'a> {
    /// Takes a plane of `count` symbols below `1 << width` from the front of `reader`.
    pub(crate) fn read(reader: &mut Reader<'a>, count: usize, width: u32, code: Code) -> Result<Self, Error> {
        let coded = if code == Code::Pack || count == 0 {
            0
        } else {
            reader.varint("plane length")?
        };
        let packed = coded == 0;
        let offset = reader.offset();
        let len = if packed {
            Some(pack::packed_len(count, width))
        } else {
            usize::try_from(coded).ok()
        };
        let len = len.ok_or_else(|| reader.corrupt("plane length"))?;
        Ok(Self {
            bytes: reader.take(len, "plane")?,
            width,
            packed,
            offset,
        })
    }

    /// Bytes that the plane, of `count` symbols under `code`, could not go below: what [`encode_symbols`] returned.
    pub(crate) fn bound(&self, count: usize, code: Code) -> Result<f64, Error> {
        if code == Code::Pack || count == 0 {
            return Ok(self.bytes.len() as f64);
        }
        let mut symbols = self.open()?;
        let mut counts = [0u64; 256];
        let mut block = [0; 4096];
        for start in (0..count).step_by(block.len()) {
            let block = &mut block[..(count - start).min(4096)];
            symbols.read(block);
            let more = table::histogram(block);
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        Ok(table::entropy(&counts) / 8.0)
    }

    pub(crate) fn open(&self) -> Result<Symbols<'a>, Error> {
        let corrupt = |_| Error::Corrupt {
            what: "rans table or states".to_owned(),
            offset: self.offset,
        };
        let coder = if self.packed {
            Coder::Pack(pack::Unpacker::new(self.bytes, self.width))
        } else {
            Coder::Rans(rans::Decoder::new(self.bytes, self.width).map_err(corrupt)?)
        };
        Ok(Symbols {
            coder,
            offset: self.offset,
        })
    }
}

/// Takes symbols from the front of a plane.
#[derive(Debug)]
pub(crate) struct Symbols<'a> {
    coder: Coder<'a>,
    offset: usize,
}

#[derive(Debug)]
enum Coder<'a> {
    Pack(pack::Unpacker<'a>),
    Rans(rans::Decoder<'a>),
}

impl Symbols<'_> {
    /// Fills `out` with the next symbols; in all no more than the plane was read for.
    pub(crate) fn read(&mut self, out: &mut [u8]) {
        match &mut self.coder {
            Coder::Pack(symbols) => symbols.read(out),
            Coder::Rans(symbols) => symbols.read(out),
        }
    }

    /// Succeeds if the plane held exactly the symbols that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let whole = match &self.coder {
            Coder::Pack(symbols) => symbols.finish(),
            Coder::Rans(symbols) => symbols.finish(),
        };
        if whole {
            Ok(())
        } else {
            Err(Error::Corrupt {
                what: "plane".to_owned(),
                offset: self.offset,
            })
        }
    }
}
