//! Gathers the values whose level is not zero: most values are compared and nothing else.

use crate::code::context::columns::GROUP;
use crate::code::context::levels::scaled::ScaledValues;
use crate::layout::Shape;
use crate::simd::vectorized;

// Values per block: few enough that `f32` sums stay accurate.
pub(crate) const BLOCK: usize = 4096;
pub(crate) const LANES: usize = 8;
// Multiplied by eight bytes of 0 or 1, moves them to the bits of the highest byte.
const BITS: u64 = 0x0102_0408_1020_4080;
const INFINITE: u32 = 0x7f80_0000;

/// The values with a nonzero level after nearest rounding with `step` and `threshold`, in steps; and the mean magnitude of those
/// at level one, from 0.5 to 2. Both have the bits of [`super::encode::nearest`].
pub(crate) fn gather(values: &[f32], shape: Shape, step: f32, threshold: f32, limit: f32) -> (ScaledValues, f32) {
    let offset = 1.0 - threshold;
    let least = first(|bits: u32| (f32::from_bits(bits) / step + offset).min(limit) >= 1.0);
    // Rows of whole groups need no ends.
    let cols = shape.cols.max(1);
    let width = if cols.is_multiple_of(GROUP) { values.len() } else { cols };
    let mut masks = Vec::with_capacity(values.len() / cols * cols.div_ceil(GROUP));
    let mut flags = [0u8; BLOCK];
    let mut ratios = Vec::new();
    let mut ones = Ones::new(values.len());
    for (row, values) in values.chunks(width.max(1)).enumerate() {
        for (block, values) in values.chunks(BLOCK).enumerate() {
            let flags = &mut flags[..values.len().next_multiple_of(GROUP)];
            let (now, rest) = flags.split_at_mut(values.len());
            rest.fill(0);
            vectorized(
                #[inline(always)]
                || {
                    for (flag, value) in now.iter_mut().zip(values) {
                        *flag = u8::from(value.to_bits() & !(1 << 31) >= least);
                    }
                },
            );
            let start = row * width + block * BLOCK;
            for (at, flags) in flags.as_chunks::<GROUP>().0.iter().enumerate() {
                let mut left = u64::from_le_bytes(*flags).wrapping_mul(BITS) >> 56;
                masks.push(left as u8);
                while left != 0 {
                    let at = at * GROUP + left.trailing_zeros() as usize;
                    left &= left - 1;
                    let ratio = values[at] / step;
                    ratios.push(ratio);
                    if ((ratio.abs() + offset).min(limit) as i32) == 1 {
                        ones.add(start + at, ratio.abs());
                    }
                }
            }
        }
    }
    let scaled = ScaledValues {
        masks,
        ratios,
        offset,
        limit,
    };
    (scaled, ones.mean())
}

/// The lowest bits of a finite magnitude from which on `holds`; those of infinity if there are none.
fn first(holds: impl Fn(u32) -> bool) -> u32 {
    let mut fails = 0;
    let mut end = INFINITE;
    while fails < end {
        let middle = fails + (end - fails) / 2;
        if holds(middle) {
            end = middle
        } else {
            fails = middle + 1
        }
    }
    end
}

/// The mean of some values, with sums by block and lane as if the others were zeros.
struct Ones {
    /// Values in whole groups of lanes; those after are added one by one.
    whole: usize,
    block: usize,
    lanes: [f32; LANES],
    rest: Vec<f32>,
    sum: f64,
    count: u64,
}

impl Ones {
    fn new(len: usize) -> Self {
        Self {
            whole: len - len % LANES,
            block: 0,
            lanes: [0.0; LANES],
            rest: Vec::new(),
            sum: 0.0,
            count: 0,
        }
    }

    /// Adds the value at a place, in ascending order.
    #[inline(always)]
    fn add(&mut self, at: usize, value: f32) {
        if at / BLOCK != self.block {
            self.end_block();
            self.block = at / BLOCK;
        }
        if at < self.whole {
            self.lanes[at % LANES] += value;
        } else {
            self.rest.push(value);
        }
        self.count += 1;
    }

    fn end_block(&mut self) {
        let values = self.lanes.iter().chain(&self.rest);
        self.sum += values.map(|&value| f64::from(value)).sum::<f64>();
        self.lanes = [0.0; LANES];
        self.rest.clear();
    }

    fn mean(mut self) -> f32 {
        if self.count == 0 {
            return 1.0;
        }
        self.end_block();
        ((self.sum / self.count as f64) as f32).clamp(0.5, 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::context::levels::nonzero::Place;
    use crate::code::context::levels::{encode_levels, encode_scaled};
    use crate::quantize::dead_zone::encode::nearest;
    use crate::quantize::laws::heavy;

    #[test]
    fn levels_and_their_mean_have_the_bits_of_the_plain_kernel() {
        for (rows, cols) in [
            (1, 1),
            (1, 9),
            (3, 7),
            (40, 20),
            (31, 333),
            (9, 4096),
            (1, 30_011),
            (2000, 3),
        ] {
            let (values, shape) = (heavy(rows * cols, 1), Shape { rows, cols });
            for (step, threshold) in [
                (1e-5f32, 0.5f32),
                (1e-3, 0.66),
                (4e-3, 1.0),
                (1e30, 0.66),
                (f32::MAX, 0.5),
            ] {
                let limit = 1e9f32.min(f32::MAX / step);
                let mut levels = vec![0; values.len()];
                let one = nearest(&values, step, threshold, limit, &mut levels);
                let (scaled, mean) = gather(&values, shape, step, threshold, limit);
                assert_eq!(mean.to_bits(), one.to_bits(), "{shape:?} {step}");
                let (mut plain, mut out) = (Vec::new(), Vec::new());
                encode_levels(&levels, shape, &mut plain);
                let nonzero = encode_scaled(&scaled, shape, &mut out);
                assert_eq!(plain, out, "{shape:?} {step}");
                let mut read = vec![0; levels.len()];
                Place::first(cols).read(&nonzero, levels.len(), |at, level| read[at] = level);
                assert_eq!(read, levels);
            }
        }
    }
}
