//! The numbers of one step, which every rule of the optimizer takes.

#[derive(Debug, Clone, Copy)]
pub(super) struct StepSize {
    pub(super) rate: f32,
    /// Factor of the gradient, from clipping.
    pub(super) scale: f32,
    pub(super) decay: f32,
}
