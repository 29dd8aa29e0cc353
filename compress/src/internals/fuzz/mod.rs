//! What fuzz targets call: each takes any bytes, and panics if something that is promised of them does not hold.
//!
//! Checksums and fingerprints are made right, so that what is behind them is reached. Sizes stay small: a target is to run
//! a few thousand times a second.

mod planes;
mod seeds;
mod whole;

pub use planes::{index_plane, levels, section, symbols};
pub use seeds::seeds;
pub use whole::{archive, frame, spec, state};

use crate::Code;
use crate::layout::Shape;

/// A target: any bytes.
pub type Target = fn(&[u8]);

/// Every target by name.
pub const TARGETS: [(&str, Target); 8] = [
    ("frame", frame),
    ("section", section),
    ("index_plane", index_plane),
    ("symbols", symbols),
    ("levels", levels),
    ("state", state),
    ("spec", spec),
    ("archive", archive),
];

const CODES: [Code; 5] = [Code::Pack, Code::Rans, Code::Rice, Code::Huffman, Code::Context];

/// The choices at the front of an input: zeros once it has ended.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    fn code(&mut self) -> Code {
        CODES[usize::from(self.u8()) % CODES.len()]
    }

    /// At most 64 by 256.
    fn shape(&mut self) -> Shape {
        Shape {
            rows: usize::from(self.u8() % 64) + 1,
            cols: usize::from(self.u8()) + 1,
        }
    }
}

/// Lengths of portions that make up `len`, most of them short.
fn portions(len: usize, mut state: u8) -> Vec<usize> {
    let (mut left, mut portions) = (len, Vec::new());
    while left > 0 {
        state = state.wrapping_mul(141).wrapping_add(57);
        let portion = match state >> 6 {
            0 => 1,
            1 => usize::from(state & 15),
            2 => usize::from(state) * 8,
            _ => usize::from(state) * 32,
        };
        portions.push(portion.clamp(1, left));
        left -= portion.clamp(1, left);
    }
    portions
}

/// What filling `len` places in one go gives, and what filling them in portions gives.
fn both_ways<T: Clone + Default, E>(
    len: usize,
    state: u8,
    mut decode: impl FnMut(&[usize], &mut [T]) -> Result<(), E>,
) -> [Result<Vec<T>, E>; 2] {
    let once = if len > 0 { vec![len] } else { Vec::new() };
    [once, portions(len, state)].map(|portions| {
        let mut out = vec![T::default(); len];
        decode(&portions, &mut out).map(|()| out)
    })
}
