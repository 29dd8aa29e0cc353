//! Assigns tensors to the sections of a frame: first all small trained tensors merged into one section, then one section
//! per other trained tensor, then one section of all buffers, then one of all counters. Tensors without values have none.

use std::borrow::Cow;

use crate::layout::{Layout, Role, Shape};
use crate::sink::Sink;

/// The tensors of one section, all of one role: one tensor, or several merged into one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorGroup {
    pub(crate) shape: Shape,
    /// Indices of the tensors in the layout.
    pub(crate) tensors: Vec<usize>,
    pub(crate) role: Role,
    /// Values for each pair of an output and an input of a convolution ([`crate::layout::Tensor::places`]); 1 of merged tensors.
    pub(crate) places: usize,
    /// Position of the values of each tensor.
    spans: Vec<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first: usize,
    /// Index of the first value in the model.
    offset: usize,
    len: usize,
}

/// The groups of a frame that merges trained tensors of fewer than `below` values.
pub(crate) fn tensor_groups(layout: &Layout, below: usize) -> Vec<TensorGroup> {
    let of = |role| {
        let tensors = layout.tensors().iter().enumerate();
        tensors.filter(move |(_, tensor)| tensor.role == role && tensor.len > 0)
    };
    let tensors = || of(Role::Trained);
    let unit = |role, shape, tensors: Vec<usize>| {
        let mut first = 0;
        TensorGroup {
            shape,
            role,
            places: match tensors.as_slice() {
                [only] => layout.tensors()[*only].places(),
                _ => 1,
            },
            spans: tensors
                .iter()
                .map(|&at| {
                    let offset = layout.tensors()[at].offset;
                    let len = layout.tensors()[at].len;
                    first += len;
                    Span {
                        first: first - len,
                        offset,
                        len,
                    }
                })
                .collect(),
            tensors,
        }
    };
    let small: Vec<usize> = tensors()
        .filter(|(_, tensor)| tensor.len < below)
        .map(|(at, _)| at)
        .collect();
    let row = |role, tensors: Vec<usize>| {
        let len = tensors.iter().map(|&at| layout.tensors()[at].len).sum();
        (len > 0).then(|| unit(role, Shape::row(len), tensors))
    };
    let others = tensors().filter(|(_, tensor)| tensor.len >= below);
    let others = others.map(|(at, tensor)| unit(Role::Trained, tensor.matrix(), vec![at]));
    let all = |role| row(role, of(role).map(|(at, _)| at).collect());
    let merged = row(Role::Trained, small).into_iter().chain(others);
    merged.chain(all(Role::Buffer)).chain(all(Role::Counter)).collect()
}

impl TensorGroup {
    /// The values of a group of one tensor.
    pub(crate) fn only<'v>(&self, model: &'v [f32]) -> Option<&'v [f32]> {
        match self.spans.as_slice() {
            [span] => Some(&model[span.offset..span.offset + span.len]),
            _ => None,
        }
    }

    /// The values of each tensor.
    pub(crate) fn slices<'v>(&self, model: &'v [f32]) -> impl Iterator<Item = &'v [f32]> {
        self.spans
            .iter()
            .map(move |span| &model[span.offset..span.offset + span.len])
    }

    /// The values of the group, copied if they are of several tensors.
    pub(crate) fn values<'v>(&self, model: &'v [f32]) -> Cow<'v, [f32]> {
        self.only(model)
            .map_or_else(|| Cow::Owned(self.gathered(model)), Cow::Borrowed)
    }

    /// A copy of the values of the group.
    pub(crate) fn gathered(&self, model: &[f32]) -> Vec<f32> {
        self.slices(model).flatten().copied().collect()
    }

    /// The range in the model of a group of one tensor.
    pub(crate) fn range(&self) -> Option<std::ops::Range<usize>> {
        match self.spans.as_slice() {
            [span] => Some(span.offset..span.offset + span.len),
            _ => None,
        }
    }

    /// For each tensor, its index in the layout and the index of its first value in the group.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (usize, usize)> {
        let firsts = self.spans.iter().map(|span| span.first);
        self.tensors.iter().copied().zip(firsts)
    }

    /// A sink of the values of the group that forwards them to `inner` with their indices in the model.
    pub(crate) fn spread<'u, S: Sink>(&'u self, inner: &'u mut S) -> Spread<'u, S> {
        Spread {
            spans: &self.spans,
            inner,
        }
    }
}

/// Maps indices in a group to indices in the model.
pub(crate) struct Spread<'u, S> {
    spans: &'u [Span],
    inner: &'u mut S,
}

impl<S: Sink> Sink for Spread<'_, S> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        let end = start + values.len();
        // Binary search, as a merged group may have as many tensors as values.
        let before = self.spans.partition_point(|span| span.first + span.len <= start);
        for span in &self.spans[before..] {
            let from = start.max(span.first);
            let to = end.min(span.first + span.len);
            if from >= to {
                break;
            }
            self.inner
                .dense(span.offset + from - span.first, &values[from - start..to - start]);
        }
    }

    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        if let [span] = self.spans {
            return self.inner.sparse(span.offset + start, indices, values);
        }
        for (&index, value) in indices.iter().zip(values) {
            self.dense(start + index as usize, std::slice::from_ref(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::sinks::Set;

    #[test]
    fn buffers_and_counters_have_sections_of_their_own() {
        let layout = crate::layout::tests::batch_norm();
        let groups = tensor_groups(&layout, 1000);
        let roles: Vec<_> = groups.iter().map(|group| (group.role, group.shape.len())).collect();
        let sums = [layout.trained(), layout.buffers(), layout.counters()].map(|range| range.len());
        assert_eq!(
            roles,
            [
                (Role::Trained, sums[0]),
                (Role::Buffer, sums[1]),
                (Role::Counter, sums[2])
            ]
        );
        let model: Vec<f32> = (0..layout.len()).map(|at| at as f32).collect();
        for (group, range) in groups
            .iter()
            .zip([layout.trained(), layout.buffers(), layout.counters()])
        {
            assert_eq!(group.gathered(&model), model[range]);
        }
        let trained = layout
            .tensors()
            .iter()
            .filter(|tensor| tensor.role == Role::Trained)
            .count();
        assert_eq!(tensor_groups(&layout, 0).len(), trained + 2);
    }

    #[test]
    fn small_tensors_come_first_as_one_row() {
        let layout = Layout::new([("a", vec![3]), ("b", vec![2, 5]), ("c", vec![2])]).unwrap();
        let units = tensor_groups(&layout, 10);
        assert_eq!(
            units.iter().map(|unit| unit.tensors.clone()).collect::<Vec<_>>(),
            [vec![0, 2], vec![1]]
        );
        let model: Vec<f32> = (0..15).map(|value| value as f32).collect();
        assert_eq!(units[0].gathered(&model), [0.0, 1.0, 2.0, 13.0, 14.0]);
        assert_eq!(units[1].only(&model), Some(&model[3..13]));
        let mut out = vec![0.0; 15];
        let mut set = Set(&mut out);
        units[0].spread(&mut set).dense(1, &[1.5, 2.5, 3.5]);
        units[0].spread(&mut set).sparse(0, &[0, 4], &[9.0, 8.0]);
        let mut expected = [0.0; 15];
        (expected[0], expected[1], expected[2], expected[13], expected[14]) = (9.0, 1.5, 2.5, 3.5, 8.0);
        assert_eq!(out, expected);
        assert_eq!(super::tensor_groups(&layout, 0).len(), 3);
        assert_eq!(super::tensor_groups(&layout, 100).len(), 1);
    }
}
