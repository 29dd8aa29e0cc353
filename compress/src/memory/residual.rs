//! The residual: what compression did not send, added to the next update.
//!
//! Error feedback (EF14: Seide et al. 2014, Stich et al. 2018): `v = delta + decay * residual`, what is sent is `C(v)`,
//! and the new residual is `v - C(v)`. With decay 1 nothing is ever lost: the sum of what was decoded plus the residual
//! is the sum of the deltas.

use crate::error::Error;
use crate::finite::update_not_finite;

/// Values handled at a time: both vectors' parts stay in the nearest cache.
const BLOCK: usize = 4096;

/// `residual` becomes `delta + decay * residual`, and `delta` the residual that was.
///
/// # Errors
/// `NotFinite` if the sum is not; then the residual is as it was, and `delta` unspecified.
pub(crate) fn absorb(residual: &mut [f32], delta: &mut [f32], decay: f32, threads: usize) -> Result<(), Error> {
    let size = residual.len().div_ceil(threads.max(1)).max(BLOCK);
    let parts: Vec<_> = residual.chunks_mut(size).zip(delta.chunks_mut(size)).collect();
    let finite = crate::threads::map(parts, threads, |(residual, delta)| {
        let blocks = residual.chunks_mut(BLOCK).zip(delta.chunks_mut(BLOCK));
        blocks.fold(true, |finite, (residual, delta)| {
            finite & swap_sum(residual, delta, decay)
        })
    });
    if finite.into_iter().all(|finite| finite) {
        return Ok(());
    }
    residual.copy_from_slice(delta);
    Err(update_not_finite())
}

/// Returns whether the sums are finite.
#[inline(never)]
fn swap_sum(residual: &mut [f32], delta: &mut [f32], decay: f32) -> bool {
    let mut any = 0;
    for (residual, delta) in residual.iter_mut().zip(delta) {
        let before = *residual;
        let sum = *delta + decay * before;
        (*residual, *delta) = (sum, before);
        // One more than the largest exponent goes into the sign.
        any |= (sum.to_bits() & 0x7fff_ffff).wrapping_add(1 << 23);
    }
    any >> 31 == 0
}
