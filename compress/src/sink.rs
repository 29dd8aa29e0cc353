//! The consumer of decoded values.

/// The consumer of decoded values.
pub(crate) trait Sink {
    /// Receives the values at `start..start + values.len()`.
    fn dense(&mut self, start: usize, values: &[f32]);

    /// Receives the values at `indices`. Indices are distinct; both slices have the same length.
    fn sparse(&mut self, indices: &[u32], values: &[f32]);
}
