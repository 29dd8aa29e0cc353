//! Where decoded values go.

/// Where decoded values go.
pub(crate) trait Sink {
    /// Takes the values at `start..start + values.len()`.
    fn dense(&mut self, start: usize, values: &[f32]);

    /// Takes the values at `indices`, each of which comes once; both slices have one length.
    fn sparse(&mut self, indices: &[u32], values: &[f32]);
}
