//! Sizes of a section by plane.

/// Bytes of one section by purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneBytes {
    /// The recipe.
    pub recipe: usize,
    /// The indices.
    pub indices: usize,
    /// The scales.
    pub scales: usize,
    /// The values.
    pub values: usize,
}

impl PlaneBytes {
    /// The whole section.
    pub fn total(&self) -> usize {
        self.recipe + self.indices + self.scales + self.values
    }
}

/// Lower bounds of the sizes of the planes of one section: the order-0 entropy of an entropy-coded plane, the size of a
/// packed plane, and for indices the logarithm of the number of supports of the same size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PlaneBounds {
    /// The indices.
    pub indices: f64,
    /// The scales.
    pub scales: f64,
    /// The values.
    pub values: f64,
}

impl PlaneBounds {
    /// The whole section, without its recipe.
    pub fn total(&self) -> f64 {
        self.indices + self.scales + self.values
    }
}
