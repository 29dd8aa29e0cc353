//! Decoder: scales and levels to values, one piece at a time.

use crate::code::method::Code;
use crate::code::symbols::{SymbolPlane, Symbols};
use crate::code::words::{WordPlane, Words};
use crate::error::Error;
use crate::quantize::method::{ValuePlane, ValueReader};
use crate::quantize::rotated::hadamard;
use crate::quantize::rotated::pieces::{LONGEST, Signs, levels, piece, pieces};
use crate::rng::KeyedRng;
use crate::wire::Reader;

// Symbols per block on the stack.
const PORTION: usize = 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plane<'a> {
    count: usize,
    bits: u32,
    signs: Signs,
    scales: WordPlane<'a, 4>,
    scale_bytes: usize,
    symbols: SymbolPlane<'a>,
}

impl<'a> Plane<'a> {
    /// Range: `bits` 1 to 4.
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        count: usize,
        bits: u32,
        code: Code,
        rng: KeyedRng,
    ) -> Result<Self, Error> {
        let offset = reader.offset();
        let scales = WordPlane::read(reader, pieces(count), code)?;
        let scale_bytes = reader.offset() - offset;
        Ok(Self {
            count,
            bits,
            signs: Signs::new(rng),
            scales,
            scale_bytes,
            symbols: SymbolPlane::read(reader, count, bits, code)?,
        })
    }
}

impl<'a> ValuePlane<'a> for Plane<'a> {
    fn scale_bytes(&self) -> usize {
        self.scale_bytes
    }

    fn bound(&self, _: usize, code: Code) -> Result<f64, Error> {
        self.symbols.bound(self.count, code)
    }

    fn open(&self) -> Result<Box<dyn ValueReader + 'a>, Error> {
        Ok(Box::new(Values {
            levels: levels(self.bits),
            signs: self.signs,
            scales: self.scales.open()?,
            symbols: self.symbols.open()?,
            start: 0,
            count: self.count,
            piece: Vec::new(),
            next: 0,
        }))
    }
}

#[derive(Debug)]
pub(crate) struct Values<'a> {
    levels: [f32; 16],
    signs: Signs,
    scales: Words<'a, 4>,
    symbols: Symbols<'a>,
    /// Index of the first value that is not decoded yet.
    start: usize,
    count: usize,
    /// The piece before `start`; its values from `next` on are not returned yet.
    piece: Vec<f32>,
    next: usize,
}

impl Values<'_> {
    fn next_piece(&mut self) {
        if self.piece.is_empty() {
            self.piece.reserve_exact(self.count.min(LONGEST));
        }
        self.piece.resize(piece(self.count - self.start), 0.0);
        self.next = 0;
        let scale = f32::from_le_bytes(self.scales.next(&mut [[0; 4]])[0]);
        let mut symbols = [0; PORTION];
        for part in self.piece.chunks_mut(PORTION) {
            let symbols = &mut symbols[..part.len()];
            self.symbols.read(symbols);
            for (value, &symbol) in part.iter_mut().zip(&*symbols) {
                *value = self.levels[usize::from(symbol & 15)];
            }
        }
        hadamard::transform(&mut self.piece);
        self.signs.apply(self.start, &mut self.piece);
        self.piece.iter_mut().for_each(|value| *value *= scale);
        self.start += self.piece.len();
    }
}

impl ValueReader for Values<'_> {
    fn read(&mut self, mut out: &mut [f32]) -> Result<(), Error> {
        while !out.is_empty() {
            if self.next == self.piece.len() {
                self.next_piece();
            }
            let held = &self.piece[self.next..];
            let (part, rest) = out.split_at_mut(out.len().min(held.len()));
            part.copy_from_slice(&held[..part.len()]);
            self.next += part.len();
            out = rest;
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Error> {
        self.scales.finish()?;
        self.symbols.finish()
    }
}
