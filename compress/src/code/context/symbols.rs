//! A plane of symbols. Each symbol is a path through a binary tree; the contexts are the distances of the two previous
//! symbols from the most frequent one.

use crate::code::coder::{Entry, IndexCoding, SymbolReader};
use crate::code::context::chance::Chance;
use crate::code::context::coder::{Binary, Decoder as Decisions, Encoder};

// Distance classes of the previous symbol: 0, 1, 2 to 3, more. Of the one before it, the last two are one class.
const NEAR: usize = 4;
const FAR: usize = 3;

pub(crate) const METHOD: Entry = Entry {
    name: "context",
    encode: |plane, out| {
        encode(plane.symbols, plane.width, plane.center(), out);
        out.len() < plane.limit
    },
    open: |bytes, width| Some(Box::new(Decoder::new(bytes, width)?)),
    indices: IndexCoding::Flags,
};

/// Appends `symbols`, each below `1 << width`; `center` is the most frequent one.
#[inline(never)]
fn encode(symbols: &[u8], width: u32, center: u8, out: &mut Vec<u8>) {
    out.push(center);
    let mut model = Model::new(width, center);
    let mut coder = Encoder::new(out);
    for &symbol in symbols {
        model.code(&mut coder, symbol);
    }
    coder.finish();
}

/// Decodes symbols in order. Past the end it returns arbitrary symbols, and [`Decoder::finish`] returns `false`.
#[derive(Debug)]
struct Decoder<'a> {
    coder: Decisions<'a>,
    model: Model,
}

impl<'a> Decoder<'a> {
    /// Opens `bytes`, with symbols below `1 << width`; `None` if the first byte is not such a symbol.
    fn new(bytes: &'a [u8], width: u32) -> Option<Self> {
        let (&center, bytes) = bytes.split_first()?;
        (u32::from(center) < 1 << width).then(|| Self {
            coder: Decisions::new(bytes),
            model: Model::new(width, center),
        })
    }
}

impl SymbolReader for Decoder<'_> {
    #[inline(never)]
    fn read(&mut self, out: &mut [u8]) {
        let mut coder = self.coder;
        for symbol in out {
            *symbol = self.model.code(&mut coder, 0);
        }
        self.coder = coder;
    }

    fn finish(&self) -> bool {
        self.coder.ends()
    }
}

#[derive(Debug)]
struct Model {
    width: u32,
    center: u8,
    near: usize,
    far: usize,
    /// Indexed by context, then by node of the tree: the root is 1, the children of n are 2n and 2n + 1.
    nodes: Vec<Chance>,
    any: Vec<Chance>,
}

impl Model {
    fn new(width: u32, center: u8) -> Self {
        Self {
            width,
            center,
            near: 0,
            far: 0,
            nodes: vec![Chance::NEW; (NEAR * FAR) << width],
            any: vec![Chance::NEW; 1 << width],
        }
    }

    #[inline(always)]
    fn code(&mut self, coder: &mut impl Binary, symbol: u8) -> u8 {
        let start = (self.near * FAR + self.far) << self.width;
        let nodes = &mut self.nodes[start..start + (1 << self.width)];
        let mut node = 1;
        for shift in (0..self.width).rev() {
            let one = coder.code_in(&mut nodes[node], &mut self.any[node], symbol >> shift & 1 != 0);
            node = node << 1 | usize::from(one);
        }
        let symbol = (node - (1 << self.width)) as u8;
        self.far = self.near.min(FAR - 1);
        self.near = match symbol.abs_diff(self.center) {
            0 => 0,
            1 => 1,
            2..=3 => 2,
            _ => 3,
        };
        symbol
    }
}
