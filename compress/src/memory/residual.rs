//! The residual: the unsent part of earlier updates, added to the next one.
//!
//! Error feedback (EF14: Seide et al. 2014, Stich et al. 2018): with `v = delta + decay * residual`, the frame carries
//! `C(v)`, and the new residual is `v - C(v)`. With decay 1 nothing is lost: the sum of the decoded updates plus the
//! residual equals the sum of the deltas.

use crate::error::Error;
use crate::finite::update_not_finite;

/// Values per block, so that the blocks of both vectors stay in the L1 cache.
const BLOCK: usize = 4096;

/// Sets `residual` to `delta + decay * residual`, and `delta` to the previous residual.
///
/// # Errors
/// `NotFinite` if the sum is not finite; then the residual is unchanged and `delta` is unspecified.
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

/// Swaps as in [`absorb`]; returns whether the sums are finite.
#[inline(never)]
fn swap_sum(residual: &mut [f32], delta: &mut [f32], decay: f32) -> bool {
    let mut any = 0;
    for (residual, delta) in residual.iter_mut().zip(delta) {
        let before = *residual;
        let sum = *delta + decay * before;
        (*residual, *delta) = (sum, before);
        // Adding one to the exponent carries into the sign bit exactly for infinity and NaN.
        any |= (sum.to_bits() & 0x7fff_ffff).wrapping_add(1 << 23);
    }
    any >> 31 == 0
}
