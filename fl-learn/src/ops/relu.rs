//! Relu, as a part of other operations: 0 below 0. NaN stays, so that a loss shows it.

use super::simd::vectorized;

#[inline(always)]
pub(super) fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// The gradient of relu's result `y` becomes that of its argument: 0 where `y` is 0. Shapes: alike.
pub(super) fn relu_grad(grad: &mut [f32], y: &[f32]) {
    vectorized(
        #[inline(always)]
        || {
            for (g, y) in grad.iter_mut().zip(y) {
                *g = if *y <= 0.0 { 0.0 } else { *g };
            }
        },
    );
}
