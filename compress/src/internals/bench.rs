//! Kernels with public types, for benches.

use crate::code::levels::{self, LevelPlane};
use crate::code::method::Code;
use crate::code::symbols::{self, SymbolPlane};
use crate::layout::Shape;
use crate::quantize::{dead_zone, rotated};
use crate::reduce::top_k;
use crate::wire::Reader;

// Values decoded at a time.
const BLOCK: usize = 4096;

/// Ascending indices of the `k` largest magnitudes.
pub fn top_k(threads: usize, values: &[f32], k: usize) -> Vec<u32> {
    top_k::top_k(threads, values, k)
}

/// Histogram of magnitudes.
#[derive(Debug)]
pub struct Histogram(dead_zone::model::Histogram);

impl Histogram {
    /// Counts finite `values`.
    pub fn new(values: &[f32]) -> Self {
        Self(dead_zone::model::Histogram::new(values))
    }

    /// Bits and squared error of a dead zone of `step` and `threshold`.
    pub fn estimate(&self, step: f64, threshold: f64) -> (f64, f64) {
        self.0.estimate(step, threshold)
    }
}

/// Fills `levels` by nearest dead-zone quantization; returns the mean magnitude at level one, in steps.
pub fn dead_zone(values: &[f32], step: f32, threshold: f32, levels: &mut [i32]) -> f32 {
    dead_zone::encode::nearest(values, step, threshold, (1 << 30) as f32, levels)
}

/// In-place Walsh-Hadamard transform; `values.len()` is a power of two.
pub fn hadamard(values: &mut [f32]) {
    rotated::hadamard::transform(values);
}

/// Appends a plane of symbols below `1 << width`.
pub fn encode_symbols(symbols: &[u8], width: u32, code: Code, out: &mut Vec<u8>) {
    symbols::encode_symbols(symbols, width, code, out);
}

/// Fills `out` with the symbols of a plane; returns whether the plane is valid.
pub fn decode_symbols(bytes: &[u8], width: u32, code: Code, out: &mut [u8]) -> bool {
    let plane = SymbolPlane::read(&mut Reader::new(bytes), out.len(), width, code);
    let open = plane.and_then(|plane| plane.open());
    open.is_ok_and(|mut symbols| {
        out.chunks_mut(BLOCK).for_each(|part| symbols.read(part));
        symbols.finish().is_ok()
    })
}

/// Appends a matrix of levels with `cols` columns.
pub fn encode_levels(levels: &[i32], cols: usize, code: Code, out: &mut Vec<u8>) {
    levels::encode_levels(levels, shape(levels.len(), cols), code, out);
}

/// Fills `out` with a matrix of levels; returns whether the plane is valid.
pub fn decode_levels(bytes: &[u8], cols: usize, code: Code, out: &mut [i32]) -> bool {
    let plane = LevelPlane::read(&mut Reader::new(bytes), shape(out.len(), cols), code);
    let open = plane.and_then(|plane| plane.open());
    open.is_ok_and(|mut levels| {
        let read = out.chunks_mut(BLOCK).try_for_each(|part| levels.read(part));
        read.and_then(|()| levels.finish()).is_ok()
    })
}

fn shape(len: usize, cols: usize) -> Shape {
    Shape { rows: len / cols, cols }
}
