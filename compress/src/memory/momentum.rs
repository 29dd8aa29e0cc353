//! Momentum correction, clipping and factor masking of Deep Gradient Compression (Lin et al. 2018, section 3).
//!
//! `velocity = momentum * velocity + delta`, `unsent = unsent + velocity`, and the frame carries `C(unsent)`. If the
//! frame is accepted, the sent values are removed from `unsent`, and `velocity` is set to zero at the sent places
//! (factor masking), so that no stale momentum returns there. `delta` is first clipped to the norm `clip`. The warm-up
//! of the density is a schedule (see `docs/reference/compressors.md`).

use crate::error::Error;
use crate::finite::{all_finite, update_not_finite};
use crate::frame::view::Frame;
use crate::sink::Sink;
use crate::spec::memory::Dgc;

/// The two vectors of Deep Gradient Compression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Momentum {
    pub(crate) numbers: Dgc,
    pub(crate) velocity: Vec<f32>,
    pub(crate) unsent: Vec<f32>,
}

impl Momentum {
    pub(crate) fn new(len: usize, numbers: Dgc) -> Self {
        Self {
            numbers,
            velocity: vec![0.0; len],
            unsent: vec![0.0; len],
        }
    }

    /// Adds `delta` to both vectors; replaces `delta` by the previous velocity, for `undo`.
    ///
    /// # Errors
    /// `NotFinite` if a value is not finite or might overflow; then nothing changes.
    pub(crate) fn absorb(&mut self, delta: &mut [f32]) -> Result<(), Error> {
        let factor = match self.numbers.clip() {
            Some(clip) => {
                let squares: f64 = delta.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
                (clip / squares.sqrt()).min(1.0)
            }
            None => 1.0,
        };
        let largest = |values: &[f32]| values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let most = f64::from(largest(&self.velocity)) + f64::from(largest(delta)) + f64::from(largest(&self.unsent));
        if !all_finite(delta) || most >= f64::from(f32::MAX) {
            return Err(update_not_finite());
        }
        let (momentum, factor) = (self.numbers.momentum() as f32, factor as f32);
        let vectors = self.velocity.iter_mut().zip(&mut self.unsent);
        for ((velocity, unsent), delta) in vectors.zip(delta) {
            let before = *velocity;
            *velocity = momentum * before + factor * *delta;
            *unsent += *velocity;
            *delta = before;
        }
        Ok(())
    }

    /// Reverts `absorb`, given the previous velocity; `unsent` is restored up to rounding.
    pub(crate) fn undo(&mut self, before: &[f32]) {
        let vectors = self.velocity.iter_mut().zip(&mut self.unsent);
        for ((velocity, unsent), before) in vectors.zip(before) {
            *unsent -= *velocity;
            *velocity = *before;
        }
    }

    /// Removes the values of `frame`.
    pub(crate) fn sent(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        frame.accumulate(-1.0, &mut self.unsent)?;
        frame.decode_into(&mut Mask(&mut self.velocity))
    }
}

/// Zeroes the places that are nonzero in the frame.
struct Mask<'a>(&'a mut [f32]);

impl Sink for Mask<'_> {
    fn dense(&mut self, start: usize, values: &[f32]) {
        for (velocity, &value) in self.0[start..start + values.len()].iter_mut().zip(values) {
            *velocity = if value == 0.0 { *velocity } else { 0.0 };
        }
    }

    fn sparse(&mut self, indices: &[u32], values: &[f32]) {
        for (&index, &value) in indices.iter().zip(values) {
            if value != 0.0 {
                self.0[index as usize] = 0.0;
            }
        }
    }
}
