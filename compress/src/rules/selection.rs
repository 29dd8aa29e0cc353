//! What a rule chooses.

/// Which values of a tensor to send. Zeros are never among them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Selection {
    /// That many of the largest magnitudes; all non-zeros if there are fewer.
    Count(usize),
    /// All magnitudes that reach `threshold`, or if fewer than `least` do, the `least` largest.
    Reaching {
        /// Above zero; infinite if no value can reach it.
        threshold: f32,
        /// At least 1 and at most the length of the tensor.
        least: usize,
    },
}

/// What a rule says of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Selected {
    /// Which values to send.
    pub(crate) chosen: Selection,
    /// Largest magnitude to send: values beyond are sent as this, with their sign.
    pub(crate) clip: Option<f32>,
}
