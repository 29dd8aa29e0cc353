//! Checks of finite values, and magnitudes.

use crate::error::Error;
use crate::simd::vectorized;

// 2^64. Sums and products of magnitudes up to this limit stay far from overflow; values beyond it take a slower path
// that checks every result.
pub(crate) const OVERFLOW_LIMIT: f32 = 18_446_744_073_709_551_616.0;

pub(crate) fn all_finite(values: &[f32]) -> bool {
    const INFINITY: i32 = f32::INFINITY.to_bits() as i32;
    vectorized(
        #[inline(always)]
        || {
            !values
                .iter()
                .fold(false, |any, value| any | (magnitude(*value) as i32 >= INFINITY))
        },
    )
}

/// The bits of the magnitude, which are in the order of magnitudes.
#[inline(always)]
pub(crate) fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// Largest magnitude of `values`, none of which is NaN.
pub(crate) fn largest(values: &[f32]) -> f32 {
    vectorized(
        #[inline(always)]
        || {
            let magnitudes = values.iter().map(|value| magnitude(*value));
            f32::from_bits(magnitudes.fold(0, u32::max))
        },
    )
}

pub(crate) fn update_not_finite() -> Error {
    Error::NotFinite("value of the update".to_owned())
}
