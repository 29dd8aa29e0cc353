//! What a rule may know of a frame beside the values: its round, and the link of the client.

/// The round of a frame, and the bandwidth of the link over which it goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RoundContext {
    pub(crate) round: u64,
    /// Rate of the client's link over the median of its cohort; 1 if unknown. Finite, not negative.
    pub(crate) bandwidth: f64,
}

impl RoundContext {
    /// With the bandwidth that a server handed out, in millionths of the median.
    pub(crate) fn new(round: u64, bandwidth: Option<u32>) -> Self {
        Self {
            round,
            bandwidth: bandwidth.map_or(1.0, |millionths| f64::from(millionths) / 1e6),
        }
    }
}

impl From<u64> for RoundContext {
    fn from(round: u64) -> Self {
        Self::new(round, None)
    }
}
