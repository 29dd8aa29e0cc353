//! Norms of a frame's values, measured while they are decoded.

use std::ops::Range;

use crate::fidelity::nonzeros;
use crate::quantize::numbers::add_scaled;
use crate::simd::vectorized;
use crate::sink::Sink;

// Lanes of a sum of squares: one sum would wait for each addition.
const LANES: usize = 8;

/// Adds `weight` times the values to `acc`, counts those that are not zero, and sums the squares of ranges while values come in
/// rising order.
#[derive(Debug)]
pub(crate) struct Measuring<'a, const N: usize> {
    pub(crate) weight: f32,
    pub(crate) acc: &'a mut [f32],
    pub(crate) nonzeros: u64,
    sums: [Squares; N],
    ascending: Option<usize>,
}

impl<'a, const N: usize> Measuring<'a, N> {
    pub(crate) fn new(weight: f32, acc: &'a mut [f32], ranges: [Range<usize>; N]) -> Self {
        Self {
            weight,
            acc,
            nonzeros: 0,
            sums: ranges.map(Squares::of),
            ascending: Some(0),
        }
    }

    /// The L2 norms, as [`Decoded::norms`] finds them; `None` if values did not come in rising order.
    pub(crate) fn norms(self) -> Option<[f64; N]> {
        self.ascending.map(|_| self.sums.map(|sum| sum.root()))
    }

    fn note(&mut self, start: usize, end: usize) -> bool {
        self.ascending = self.ascending.filter(|before| *before <= start).map(|_| end);
        self.ascending.is_some()
    }
}

impl<const N: usize> Sink for Measuring<'_, N> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        self.nonzeros += nonzeros(values);
        add_scaled(self.weight, values, &mut self.acc[start..start + values.len()]);
        if self.note(start, start + values.len()) {
            self.sums.iter_mut().for_each(|sum| sum.dense(start, values));
        }
    }

    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        self.nonzeros += nonzeros(values);
        for (&index, value) in indices.iter().zip(values) {
            let at = start + index as usize;
            self.acc[at] += self.weight * value;
            if self.note(at, at + 1) {
                self.sums.iter_mut().for_each(|sum| sum.one(at, *value));
            }
        }
    }
}

/// The sum of the squares of a range of values, which come in rising order.
#[derive(Debug)]
pub(crate) struct Squares {
    range: Range<usize>,
    /// The end of the values that fill all lanes.
    whole: usize,
    lanes: [f64; LANES],
    rest: f64,
}

impl Squares {
    pub(crate) fn of(range: Range<usize>) -> Self {
        let whole = range.start + range.len() / LANES * LANES;
        Self {
            range,
            whole,
            lanes: [0.0; LANES],
            rest: 0.0,
        }
    }

    pub(crate) fn one(&mut self, at: usize, value: f32) {
        if !self.range.contains(&at) {
            return;
        }
        let square = f64::from(value) * f64::from(value);
        if at < self.whole {
            self.lanes[(at - self.range.start) % LANES] += square
        } else {
            self.rest += square
        }
    }

    pub(crate) fn dense(&mut self, start: usize, values: &[f32]) {
        let from = start.max(self.range.start);
        let to = (start + values.len()).min(self.range.end);
        if from >= to {
            return;
        }
        let first = (self.range.start + (from - self.range.start).next_multiple_of(LANES)).min(to);
        let last = first + self.whole.min(to).saturating_sub(first) / LANES * LANES;
        let part = |range: Range<usize>| (range.start..).zip(&values[range.start - start..range.end - start]);
        part(from..first).for_each(|(at, value)| self.one(at, *value));
        let (eights, _) = values[first - start..last - start].as_chunks::<LANES>();
        vectorized(
            #[inline(always)]
            || {
                for eight in eights {
                    for (lane, value) in self.lanes.iter_mut().zip(eight) {
                        *lane += f64::from(*value) * f64::from(*value);
                    }
                }
            },
        );
        part(last..to).for_each(|(at, value)| self.one(at, *value));
    }

    pub(crate) fn root(self) -> f64 {
        (self.lanes.iter().sum::<f64>() + self.rest).sqrt()
    }
}
