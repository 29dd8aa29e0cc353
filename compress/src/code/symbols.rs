//! Planes of symbols, under any code.

use crate::code::coder::{AnyReader, RawPlane};
use crate::code::method::Code;
use crate::code::{pack, table};
use crate::error::Error;
use crate::wire::{Reader, Writer};

/// Appends a plane of symbols below `1 << width`. Returns its order-0 entropy in bytes, a lower bound for every code
/// except [`Code::Context`]; or its size if the plane is not entropy coded.
pub(crate) fn encode_symbols(symbols: &[u8], width: u32, code: Code, out: &mut Vec<u8>) -> f64 {
    let plain = pack::packed_len(symbols.len(), width);
    if code == Code::Pack || symbols.is_empty() {
        pack::pack(symbols, width, out);
        return plain as f64;
    }
    let raw = RawPlane {
        symbols,
        width,
        counts: table::histogram(symbols),
        limit: plain,
    };
    let mut coded = Vec::new();
    if (code.entry().encode)(&raw, &mut coded) {
        Writer::new(out).varint(coded.len() as u64);
        out.append(&mut coded);
    } else {
        Writer::new(out).varint(0);
        pack::pack(symbols, width, out);
    }
    table::entropy(&raw.counts) / 8.0
}

/// A plane of symbols, still encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SymbolPlane<'a> {
    bytes: &'a [u8],
    width: u32,
    code: Code,
    offset: usize,
}

impl<'a> SymbolPlane<'a> {
    /// Reads a plane of `count` symbols below `1 << width`.
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
            code: if packed { Code::Pack } else { code },
            offset,
        })
    }

    /// Lower bound in bytes of the plane of `count` symbols under `code`: the result of [`encode_symbols`].
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
        let coder = (self.code.entry().open)(self.bytes, self.width);
        let coder = coder.ok_or_else(|| Error::Corrupt {
            what: "code table or states".to_owned(),
            offset: self.offset,
        })?;
        Ok(Symbols {
            coder,
            offset: self.offset,
        })
    }
}

#[derive(Debug)]
pub(crate) struct Symbols<'a> {
    coder: AnyReader<'a>,
    offset: usize,
}

impl Symbols<'_> {
    /// Fills `out` with the next symbols. All calls together may not ask for more symbols than the plane has.
    pub(crate) fn read(&mut self, out: &mut [u8]) {
        self.coder.read(out);
    }

    /// Succeeds if the plane holds exactly the symbols that were read.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        if self.coder.finish() {
            Ok(())
        } else {
            Err(Error::Corrupt {
                what: "plane".to_owned(),
                offset: self.offset,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::KeyedRng;

    fn decode(bytes: &[u8], count: usize, width: u32, code: Code, portion: usize) -> Result<Vec<u8>, Error> {
        let mut reader = Reader::new(bytes);
        let plane = SymbolPlane::read(&mut reader, count, width, code)?;
        reader.finish("end")?;
        let mut symbols = plane.open()?;
        let mut out = vec![0; count];
        out.chunks_mut(portion).for_each(|part| symbols.read(part));
        symbols.finish().map(|()| out)
    }

    /// Geometric distribution around the middle of the alphabet.
    fn peaked(count: usize, width: u32, seed: u64) -> Vec<u8> {
        let (rng, middle) = (KeyedRng::new(seed, 0), 1i32 << (width - 1));
        let far = |i| rng.bits(i).trailing_zeros() as i32 * if rng.bits(i) >> 63 == 0 { 1 } else { -1 };
        (0..count)
            .map(|i| (middle + far(i)).clamp(0, 2 * middle - 1) as u8)
            .collect()
    }

    #[test]
    fn planes_round_trip_under_every_code_and_never_grow() {
        for code in Code::ALL.iter().copied() {
            for (width, count) in (1..=8).flat_map(|width| [1, 2, 9, 300, 5000].map(|count| (width, count))) {
                let top = ((1u32 << width) - 1) as u8;
                let uniform = (0..count).map(|i| KeyedRng::new(3, 0).bits(i) as u8 & top).collect();
                for symbols in [peaked(count, width, 1), uniform, vec![top; count], vec![0; count]] {
                    let mut bytes = Vec::new();
                    encode_symbols(&symbols, width, code, &mut bytes);
                    assert!(bytes.len() <= pack::packed_len(count, width) + 1);
                    for portion in [1, 7, 4096] {
                        assert_eq!(decode(&bytes, count, width, code, portion).as_ref(), Ok(&symbols));
                    }
                }
            }
        }
    }

    #[test]
    fn coded_values_are_near_their_entropy() {
        let symbols = peaked(100_000, 4, 2);
        for (code, most) in [
            (Code::Rans, 1.002),
            (Code::Huffman, 1.05),
            (Code::Rice, 1.10),
            (Code::Context, 1.01),
        ] {
            let mut bytes = Vec::new();
            let bound = encode_symbols(&symbols, 4, code, &mut bytes);
            assert!(
                (bytes.len() as f64) < bound * most + 64.0,
                "{code:?}: {} of {bound}",
                bytes.len()
            );
        }
    }

    #[test]
    fn changed_bytes_never_panic_and_cuts_are_noticed() {
        let symbols = peaked(400, 5, 3);
        for code in Code::ALL.iter().copied() {
            let mut bytes = Vec::new();
            encode_symbols(&symbols, 5, code, &mut bytes);
            for cut in 0..bytes.len() {
                assert!(
                    decode(&bytes[..cut], 400, 5, code, 64).is_err(),
                    "{code:?} cut at {cut}"
                );
            }
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(out) = decode(&bytes, 400, 5, code, 64) {
                    assert!(out.iter().all(|&symbol| symbol < 32));
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
