//! Scales, norms and sums shared by quantizers and consumers of decoded values.

use crate::error::Error;
use crate::fidelity::dot;
use crate::simd::vectorized;
use crate::wire::Reader;

/// Reads a scale as binary32 and checks that it is finite and not negative.
pub(crate) fn read_scale(reader: &mut Reader<'_>, what: &str) -> Result<f32, Error> {
    let scale = f32::from_bits(reader.u32(what)?);
    if !scale.is_finite() {
        return Err(Error::NotFinite(what.to_owned()));
    }
    if scale.is_sign_negative() {
        return Err(reader.corrupt(what));
    }
    Ok(scale)
}

/// Root mean square of `values`, summed in `f64` in a fixed order so that every machine gets the same bits.
pub(crate) fn root_mean_square(values: &[f32]) -> f64 {
    (sum_of_squares(values) / values.len().max(1) as f64).sqrt()
}

pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    dot(values, values)
}

/// Adds `weight` times each value to the sum at its place. Shapes: equal lengths.
pub(crate) fn add_scaled(weight: f32, values: &[f32], sums: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || {
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += weight * value)
        },
    );
}
