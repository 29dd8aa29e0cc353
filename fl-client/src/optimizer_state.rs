//! What an optimizer carries from step to step, outside of the device that trains.

/// Moments of a local optimizer after its last step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OptimizerState {
    /// Name of the optimizer, 1 to 64 bytes.
    pub optimizer: String,
    /// Steps that made the moments.
    pub steps: u64,
    /// The moments, tensor after tensor in the order of the layout; how many there are, and their order within a tensor, is the
    /// optimizer's. At most [`OptimizerState::PER_VALUE`] for each value of the model.
    pub values: Vec<f32>,
}

impl OptimizerState {
    /// Most moments for each value of the model.
    pub const PER_VALUE: usize = 2;
    /// Longest name of an optimizer, in bytes.
    pub const MAX_NAME: usize = 64;
}
