//! Bytes of a section by plane.

/// Bytes of one section by what they are for.
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

/// Bytes that the planes of one section could not go below: the order-0 entropy of those that are entropy coded, the size
/// of the others; of the indices the logarithm of the number of supports of the same size.
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
