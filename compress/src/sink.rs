//! The consumer of decoded values.

/// The consumer of decoded values.
pub(crate) trait Sink {
    /// Receives the values at `start..start + values.len()`.
    fn dense(&mut self, start: usize, values: &[f32]);

    /// Receives the values at `start + index` for each of `indices`. Indices are distinct; both slices have the same length.
    fn sparse(&mut self, start: usize, indices: &[u32], values: &[f32]) {
        for (&index, value) in indices.iter().zip(values) {
            self.dense(start + index as usize, std::slice::from_ref(value));
        }
    }
}
