//! Consumers of decoded values.

use crate::fidelity::Products;
use crate::finite::largest;
use crate::layout::Layout;
use crate::quantize::numbers::add_scaled;
use crate::sink::Sink;

#[derive(Default)]
pub(crate) struct Largest(pub(crate) f32);

impl Sink for Largest {
    fn dense(&mut self, _: usize, values: &[f32]) {
        self.0 = self.0.max(largest(values));
    }

    fn sparse(&mut self, _: usize, _: &[u32], values: &[f32]) {
        self.dense(0, values);
    }
}

/// Adds `weight` times the values.
pub(crate) struct Add<'a> {
    pub(crate) weight: f32,
    pub(crate) acc: &'a mut [f32],
}

impl Sink for Add<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        let acc = &mut self.acc[start..start + values.len()];
        add_scaled(self.weight, values, acc);
    }

    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        let acc = &mut self.acc[start..];
        for (&index, value) in indices.iter().zip(values) {
            acc[index as usize] += self.weight * value;
        }
    }
}

/// Hands all values to the first sink, then to the second.
pub(crate) struct Both<'a, A, B>(pub(crate) &'a mut A, pub(crate) &'a mut B);

impl<A: Sink, B: Sink> Sink for Both<'_, A, B> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        self.0.dense(start, values);
        self.1.dense(start, values);
    }

    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        self.0.sparse(start, indices, values);
        self.1.sparse(start, indices, values);
    }
}

/// Sums the products of the decoded values with `values` and `other`; with `subtract`, then subtracts them from
/// `values`.
pub(crate) struct MeasuringSink<'a> {
    pub(crate) values: &'a mut [f32],
    /// Of the length of `values`.
    pub(crate) other: Option<&'a [f32]>,
    pub(crate) subtract: bool,
    pub(crate) products: Products,
}

impl Sink for MeasuringSink<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        let range = start..start + values.len();
        let own = &mut self.values[range.clone()];
        self.products.dense(values, own, self.other.map(|other| &other[range]));
        if self.subtract {
            own.iter_mut().zip(values).for_each(|(own, value)| *own -= value);
        }
    }

    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        let own = &mut self.values[start..];
        self.products
            .sparse(indices, values, own, self.other.map(|other| &other[start..]));
        if self.subtract {
            for (&index, value) in indices.iter().zip(values) {
                own[index as usize] -= value;
            }
        }
    }
}

/// As [`MeasuringSink`] without `other`, but with separate sums per tensor. Shapes: `values: [layout.len()]`.
pub(crate) struct MeasuredByTensor<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) values: &'a mut [f32],
    pub(crate) subtract: bool,
    pub(crate) products: &'a mut [Products],
}

impl Sink for MeasuredByTensor<'_> {
    /// All of `values` belong to one tensor.
    fn dense(&mut self, start: usize, values: &[f32]) {
        let tensors = self.layout.tensors();
        let tensor = tensors.partition_point(|tensor| tensor.offset + tensor.len <= start);
        let mut sink = MeasuringSink {
            values: &mut *self.values,
            other: None,
            subtract: self.subtract,
            products: self.products[tensor],
        };
        sink.dense(start, values);
        self.products[tensor] = sink.products;
    }
}

/// Overwrites the target with the decoded values.
pub(crate) struct Set<'a>(pub(crate) &'a mut [f32]);

impl Sink for Set<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        self.0[start..start + values.len()].copy_from_slice(values);
    }

    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        let out = &mut self.0[start..];
        for (&index, &value) in indices.iter().zip(values) {
            out[index as usize] = value;
        }
    }
}
