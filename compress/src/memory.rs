//! What compression left unsent, carried from one update to the next.
//!
//! Error feedback (EF14: Seide et al. 2014, Stich et al. 2018): `v = delta + decay * residual`, what is sent is `C(v)`,
//! and the new residual is `v - C(v)`. With decay 1 nothing is ever lost: the sum of what was decoded plus the residual
//! is the sum of the deltas.

use crate::section::all_finite;
use crate::{Error, Frame};

/// Values handled at a time: both vectors' parts stay in the nearest cache.
const BLOCK: usize = 4096;

/// The residual and how much of it returns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Residual {
    pub(crate) values: Vec<f32>,
    pub(crate) decay: f32,
}

impl Residual {
    pub(crate) fn new(len: usize, decay: f32) -> Self {
        Self {
            values: vec![0.0; len],
            decay,
        }
    }

    /// The residual becomes `delta + decay * residual`, and `delta` the residual that was.
    ///
    /// # Errors
    /// `NotFinite` if the sum is not; then the residual is as it was, and `delta` unspecified.
    pub(crate) fn absorb(&mut self, delta: &mut [f32]) -> Result<(), Error> {
        let blocks = self.values.chunks_mut(BLOCK).zip(delta.chunks_mut(BLOCK));
        let finite = blocks.fold(true, |finite, (residual, delta)| {
            swap_sum(residual, delta, self.decay);
            finite & all_finite(residual)
        });
        if finite {
            return Ok(());
        }
        self.values.copy_from_slice(delta);
        Err(Error::NotFinite("value of the update".to_owned()))
    }

    /// Takes the content of `frame` out of the residual, or puts it back.
    pub(crate) fn add(&mut self, weight: f32, frame: &Frame<'_>) -> Result<(), Error> {
        frame.accumulate(weight, &mut self.values)
    }
}

#[inline(never)]
fn swap_sum(residual: &mut [f32], delta: &mut [f32], decay: f32) {
    for (residual, delta) in residual.iter_mut().zip(delta) {
        let before = *residual;
        *residual = *delta + decay * before;
        *delta = before;
    }
}
