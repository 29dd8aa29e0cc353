//! Where decoded values go.

use crate::section::Sink;

/// Keeps only the largest magnitude, as its bits: those of positive floats are ordered as the floats are.
#[derive(Default)]
pub(super) struct Largest(u32);

impl Largest {
    pub(super) fn value(&self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl Sink for Largest {
    fn dense(&mut self, _: usize, values: &[f32]) {
        let magnitudes = values.iter().map(|value| value.to_bits() & !(1 << 31));
        self.0 = magnitudes.fold(self.0, u32::max);
    }

    fn sparse(&mut self, _: &[u32], values: &[f32]) {
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
        acc.iter_mut()
            .zip(values)
            .for_each(|(acc, value)| *acc += self.weight * value);
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        for (&index, value) in indices.iter().zip(values) {
            self.acc[index as usize] += self.weight * value;
        }
    }
}

/// Counts the values that are not zero, and hands all of them on.
pub(super) struct Counted<'a, S> {
    pub(super) inner: &'a mut S,
    pub(super) nonzeros: u64,
}

impl<S> Counted<'_, S> {
    fn count(&mut self, values: &[f32]) {
        // Lanes as wide as the values, so that a comparison is one subtraction; of few enough values not to overflow.
        for part in values.chunks(1 << 16) {
            let nonzeros: u32 = part.iter().map(|value| u32::from(*value != 0.0)).sum();
            self.nonzeros += u64::from(nonzeros);
        }
    }
}

impl<S: Sink> Sink for Counted<'_, S> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        self.count(values);
        self.inner.dense(start, values);
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        self.count(values);
        self.inner.sparse(indices, values);
    }
}

/// Overwrites with the values.
pub(crate) struct Set<'a>(pub(crate) &'a mut [f32]);

impl Sink for Set<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        self.0[start..start + values.len()].copy_from_slice(values);
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        for (&index, &value) in indices.iter().zip(values) {
            self.0[index as usize] = value;
        }
    }
}
