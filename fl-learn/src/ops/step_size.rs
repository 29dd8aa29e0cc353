//! The numbers of one step, which every rule of the optimizer takes.

/// The numbers of one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSize {
    /// Learning rate.
    pub(super) rate: f32,
    /// Factor of the gradient, from clipping.
    pub(super) scale: f32,
    /// Weight decay.
    pub(super) decay: f32,
}
