//! The values of a decoded frame, kept to be added and measured without decoding it again.

use std::ops::Range;

use crate::fidelity::nonzeros;
use crate::finite::largest;
use crate::frame::measuring::Squares;
use crate::quantize::numbers::add_scaled;
use crate::sink::Sink;

/// What a frame decodes to, made by [`Frame::decode_to`](crate::Frame::decode_to): 4 bytes for each value of dense parts, 8 for
/// each nonzero value of the others. Memory is used again by the next frame.
#[derive(Debug, Default)]
pub struct Decoded {
    /// In the order in which the frame is decoded. Runs of one section may overlap: their values add up.
    runs: Vec<Run>,
    /// Of the sparse runs.
    indices: Vec<u32>,
    /// Of all runs.
    values: Vec<f32>,
    nonzeros: Vec<u64>,
    largest: f32,
    /// The end of the values so far, if none of them was before the end of those before it.
    ascending: Option<usize>,
    /// Bytes that the values may take.
    limit: usize,
    is_whole: bool,
}

/// Values side by side, or with an index each.
#[derive(Debug, Clone, Copy)]
enum Run {
    Dense { start: usize, len: usize },
    Sparse { len: usize },
}

// Values side by side are kept by their indices if no more than one of so many is not zero: 8 bytes for each, in place
// of 4 for all, at most half the memory.
const SPARSE: usize = 4;
// As are so few.
const FEW: usize = 16;
// Values tested for zero at once.
const GROUP: usize = 8;

impl Decoded {
    /// The largest magnitude of the values: no sum of those of a section is larger than what they add up to.
    pub fn largest(&self) -> f32 {
        self.largest
    }

    /// Nonzero values of each section, in the order of [`Frame::sections`](crate::Frame::sections).
    pub fn nonzeros(&self) -> &[u64] {
        &self.nonzeros
    }

    /// Whether all values are kept: they take no more bytes than the limit.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Frees the memory that the values do not need, if it is more than half.
    pub fn trim(&mut self) {
        if self.indices.capacity() > 2 * self.indices.len() {
            self.indices.shrink_to_fit();
        }
        if self.values.capacity() > 2 * self.values.len() {
            self.values.shrink_to_fit();
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        4 * (self.indices.capacity() + self.values.capacity())
    }

    /// Adds `weight` times the values to `acc`, as [`Frame::accumulate`](crate::Frame::accumulate) does: to the same bits, unless
    /// `acc` holds a negative zero. Shapes: `acc: [layout.len()]`.
    pub fn add(&self, weight: f32, acc: &mut [f32]) {
        self.each(|run| match run {
            Values::Dense(start, values) => add_scaled(weight, values, &mut acc[start..start + values.len()]),
            Values::Sparse(indices, values) => {
                for (&index, value) in indices.iter().zip(values) {
                    acc[index as usize] += weight * value;
                }
            }
        });
    }

    /// As [`Decoded::add`], for the values of a range. Shapes: `acc: [layout.len()]`.
    pub fn add_range(&self, range: Range<usize>, weight: f32, acc: &mut [f32]) {
        self.each(|run| match run {
            Values::Dense(start, values) => {
                let from = start.max(range.start);
                let to = (start + values.len()).min(range.end);
                if from < to {
                    add_scaled(weight, &values[from - start..to - start], &mut acc[from..to]);
                }
            }
            Values::Sparse(indices, values) => {
                for (&index, value) in indices.iter().zip(values) {
                    if range.contains(&(index as usize)) {
                        acc[index as usize] += weight * value;
                    }
                }
            }
        });
    }

    /// Overwrites `out` with the values of a range, whose sections have no runs that overlap. Shapes: `out: [range.len()]`.
    pub fn read(&self, range: Range<usize>, out: &mut [f32]) {
        out.fill(0.0);
        self.each(|run| match run {
            Values::Dense(start, values) => {
                let from = start.max(range.start);
                let to = (start + values.len()).min(range.end);
                if from < to {
                    out[from - range.start..to - range.start].copy_from_slice(&values[from - start..to - start]);
                }
            }
            Values::Sparse(indices, values) => {
                for (&index, value) in indices.iter().zip(values) {
                    if range.contains(&(index as usize)) {
                        out[index as usize - range.start] = *value;
                    }
                }
            }
        });
    }

    /// The L2 norms of ranges of the values, with `plus` added to them. The sums have eight lanes, by the place of a value in its
    /// range. `scratch` is overwritten where values of a section add up. Shapes: `plus: [layout.len()]`.
    pub fn norms<const N: usize>(
        &self,
        ranges: [Range<usize>; N],
        len: usize,
        plus: Option<&[f32]>,
        scratch: &mut Vec<f32>,
    ) -> [f64; N] {
        let mut sums = ranges.map(Squares::of);
        if plus.is_none() && self.ascending.is_some() {
            self.each(|run| match run {
                Values::Dense(start, values) => sums.iter_mut().for_each(|sum| sum.dense(start, values)),
                Values::Sparse(indices, values) => {
                    for (&index, value) in indices.iter().zip(values) {
                        sums.iter_mut().for_each(|sum| sum.one(index as usize, *value));
                    }
                }
            });
        } else {
            scratch.clear();
            scratch.resize(len, 0.0);
            self.add(1.0, scratch);
            let plus = plus.into_iter().flatten();
            scratch.iter_mut().zip(plus).for_each(|(sum, value)| *sum += value);
            sums.iter_mut().for_each(|sum| sum.dense(0, scratch));
        }
        sums.map(|sum| sum.root())
    }

    /// Removes all values. Those of the next frame may take `limit` bytes.
    pub(crate) fn clear(&mut self, limit: usize) {
        self.runs.clear();
        self.indices.clear();
        self.values.clear();
        self.nonzeros.clear();
        (self.largest, self.ascending) = (0.0, Some(0));
        (self.limit, self.is_whole) = (limit, true);
    }

    pub(crate) fn begin_section(&mut self) {
        self.nonzeros.push(0);
    }

    pub(crate) fn end_section(&mut self, len: usize) {
        if let Some(nonzeros) = self.nonzeros.last_mut() {
            // Where runs overlap, they may have more nonzero values than the section.
            *nonzeros = (*nonzeros).min(len as u64);
        }
    }

    fn each(&self, mut visit: impl FnMut(Values<'_>)) {
        let mut indices = self.indices.as_slice();
        let mut values = self.values.as_slice();
        for run in &self.runs {
            match *run {
                Run::Dense { start, len } => visit(Values::Dense(start, values.split_off(..len).unwrap_or_default())),
                Run::Sparse { len } => visit(Values::Sparse(
                    indices.split_off(..len).unwrap_or_default(),
                    values.split_off(..len).unwrap_or_default(),
                )),
            }
        }
    }

    /// Notes values up to `end` of which the first is at `start`, and that they take so many bytes. Returns whether to keep them.
    fn note(&mut self, start: usize, end: usize, bytes: usize) -> bool {
        self.ascending = self.ascending.filter(|before| *before <= start).map(|_| end);
        let bytes = bytes + 4 * (self.indices.len() + self.values.len());
        if self.is_whole && bytes > self.limit {
            self.is_whole = false;
            (self.runs, self.indices, self.values) = Default::default();
        }
        self.is_whole
    }

    /// Counts the nonzero values of the section, and returns those of `values`.
    fn measure(&mut self, values: &[f32]) -> u64 {
        self.largest = self.largest.max(largest(values));
        let found = nonzeros(values);
        if let Some(sum) = self.nonzeros.last_mut() {
            *sum += found;
        }
        found
    }

    fn push_sparse(&mut self, entries: impl Iterator<Item = (u32, f32)>) {
        let before = self.values.len();
        for (index, value) in entries {
            self.indices.push(index);
            self.values.push(value);
        }
        self.push_run(self.values.len() - before);
    }

    /// Appends the nonzero values, of which there are `count`, with their indices from `start`.
    fn push_nonzeros(&mut self, start: u32, values: &[f32], count: usize) {
        let first_index = self.indices.len();
        let first_value = self.values.len();
        // One place more, where zeros after the last are written: a test of each value would take longer.
        self.indices.resize(first_index + count + 1, 0);
        self.values.resize(first_value + count + 1, 0.0);
        let indices = &mut self.indices[first_index..];
        let kept = &mut self.values[first_value..];
        let mut next = 0;
        for (start, group) in (start..).step_by(GROUP).zip(values.chunks(GROUP)) {
            if group.iter().fold(0, |any, value| any | value.to_bits() << 1) == 0 {
                continue;
            }
            for (index, &value) in (start..).zip(group) {
                (indices[next], kept[next]) = (index, value);
                next += usize::from(value != 0.0);
            }
        }
        self.indices.truncate(first_index + count);
        self.values.truncate(first_value + count);
        self.push_run(count);
    }

    /// Notes that so many indices and values were appended.
    fn push_run(&mut self, added: usize) {
        match self.runs.last_mut() {
            _ if added == 0 => {}
            Some(Run::Sparse { len }) => *len += added,
            _ => self.runs.push(Run::Sparse { len: added }),
        }
    }
}

enum Values<'a> {
    Dense(usize, &'a [f32]),
    Sparse(&'a [u32], &'a [f32]),
}

/// Keeps the values with their indices in the model.
impl Sink for Decoded {
    fn dense(&mut self, start: usize, values: &[f32]) {
        let found = self.measure(values) as usize;
        let end = start + values.len();
        if found * SPARSE <= values.len() || values.len() < FEW {
            if self.note(start, end, 8 * found) {
                self.push_nonzeros(start as u32, values, found);
            }
            return;
        }
        if !self.note(start, end, 4 * values.len()) {
            return;
        }
        self.values.extend_from_slice(values);
        match self.runs.last_mut() {
            Some(Run::Dense { start: first, len }) if *first + *len == start => *len += values.len(),
            _ => self.runs.push(Run::Dense {
                start,
                len: values.len(),
            }),
        }
    }

    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        self.measure(values);
        let (Some(first), Some(last)) = (indices.first(), indices.last()) else {
            return;
        };
        if !indices.is_sorted() {
            self.ascending = None;
        }
        let first = start + *first as usize;
        let end = start + *last as usize + 1;
        if self.note(first, end, 8 * indices.len()) {
            let start = start as u32;
            self.push_sparse(indices.iter().map(|index| start + index).zip(values.iter().copied()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The norm over all values of a range.
    fn plain(values: &[f32]) -> f64 {
        let (eights, rest) = values.as_chunks::<8>();
        let mut sums = [0.0f64; 8];
        for eight in eights {
            for (sum, value) in sums.iter_mut().zip(eight) {
                *sum += f64::from(*value) * f64::from(*value);
            }
        }
        let rest: f64 = rest.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
        (sums.iter().sum::<f64>() + rest).sqrt()
    }

    const LEN: usize = 3_000;

    /// A call of a sink: the first index, and values with gaps between them where it is sparse.
    fn call() -> impl Strategy<Value = (usize, Vec<f32>, Option<usize>)> {
        let values = prop::collection::vec(prop_oneof![3 => Just(0.0f32), 1 => -2.0f32..2.0], 1..300);
        (0..LEN - 1, values, prop::option::of(1usize..4))
    }

    proptest! {
        #[test]
        fn values_are_added_and_measured_as_they_were_given(
            calls in prop::collection::vec(call(), 0..12),
            sorted in any::<bool>(),
            cut in (0..LEN, 0..LEN),
            plus in any::<bool>(),
        ) {
            let mut calls = calls;
            if sorted {
                calls.sort_by_key(|(start, ..)| *start);
            }
            let mut decoded = Decoded::default();
            decoded.clear(usize::MAX);
            let (mut sum, mut acc) = (vec![0.0f32; LEN], vec![0.5f32; LEN]);
            let mut largest = 0.0f32;
            for (start, values, gap) in &calls {
                let step = gap.unwrap_or(1);
                let pairs: Vec<(u32, f32)> = (*start..LEN).step_by(step).map(|at| at as u32).zip(values.iter().copied()).collect();
                let (indices, values): (Vec<u32>, Vec<f32>) = pairs.iter().copied().unzip();
                for (index, value) in &pairs {
                    sum[*index as usize] += value;
                    acc[*index as usize] += 0.3 * value;
                    largest = largest.max(value.abs());
                }
                decoded.begin_section();
                match gap {
                    None => decoded.dense(*start, &values),
                    Some(_) => decoded.sparse(0, &indices, &values),
                }
                decoded.end_section(LEN);
            }
            let mut added = vec![0.5f32; LEN];
            decoded.add(0.3, &mut added);
            prop_assert_eq!(&added, &acc);
            let range = cut.0.min(cut.1)..cut.0.max(cut.1);
            let mut part = vec![0.5f32; LEN];
            decoded.add_range(range.clone(), 0.3, &mut part);
            acc.iter_mut().enumerate().filter(|(at, _)| !range.contains(at)).for_each(|(_, acc)| *acc = 0.5);
            prop_assert_eq!(&part, &acc);
            prop_assert_eq!(decoded.largest(), largest);
            prop_assert!(decoded.is_whole());
            let other: Vec<f32> = (0..LEN).map(|at| (at as f32).sin()).collect();
            let other = plus.then_some(other.as_slice());
            sum.iter_mut().zip(other.into_iter().flatten()).for_each(|(sum, value)| *sum += value);
            let found = decoded.norms([range.clone(), 0..LEN], LEN, other, &mut Vec::new());
            let expected = [plain(&sum[range]), plain(&sum)];
            prop_assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits));
        }
    }

    #[test]
    fn values_beyond_the_limit_are_not_kept_but_counted() {
        let mut decoded = Decoded::default();
        decoded.clear(100);
        decoded.begin_section();
        decoded.dense(10, &[1.0; 20]);
        assert!(decoded.is_whole());
        decoded.dense(30, &[-3.0; 20]);
        decoded.end_section(40);
        assert!(!decoded.is_whole());
        assert_eq!(
            (decoded.largest(), decoded.nonzeros(), decoded.bytes()),
            (3.0, &[40][..], 0)
        );
        decoded.clear(100);
        decoded.begin_section();
        decoded.sparse(10, &[0, 5], &[1.0, 2.0]);
        let mut out = vec![9.0; 6];
        decoded.read(11..17, &mut out);
        assert_eq!(out, [0.0, 0.0, 0.0, 0.0, 2.0, 0.0]);
        assert!(decoded.is_whole());
    }
}
