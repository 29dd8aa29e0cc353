//! The decision of a rule.

/// Which values of a tensor to send. Zeros are never sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Selection {
    /// This many of the largest magnitudes; all nonzero values if there are fewer.
    Count(usize),
    /// This many of those whose magnitude times the root of the mean squared gradient is largest; those with a zero gradient
    /// are never sent. Without squared gradients, as `Count`.
    Weighted(usize),
    /// All magnitudes that reach `threshold`; if fewer than `least` do, the `least` largest.
    Reaching {
        /// Positive; infinite if no value can reach it.
        threshold: f32,
        /// At least 1 and at most the length of the tensor.
        least: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RuleDecision {
    pub(crate) chosen: Selection,
    /// Larger magnitudes are clipped to this one before sending.
    pub(crate) clip: Option<f32>,
}
