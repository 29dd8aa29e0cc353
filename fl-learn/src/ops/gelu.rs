//! The activation GELU.

use candle_core::{Result, Tensor};

use super::cuda::Kernel;
use super::simd::{tanh, vectorized};
use super::tape::Tape;

/// `sqrt(2 / pi)`.
const SCALE: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

/// `x` times an approximation of the normal distribution's cumulative function by `tanh`, as in GPT-2 (Hendrycks and
/// Gimpel 2016, section 2).
pub(crate) fn gelu(tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
    tape.apply(
        [x],
        x.shape(),
        |[x], _| {
            let mut out = vec![0.0; x.len()];
            vectorized(
                #[inline(always)]
                || {
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out = 0.5 * x * (1.0 + tanh(argument(x)));
                    }
                },
            );
            (out, |mut grad, [x]| {
                vectorized(
                    #[inline(always)]
                    || {
                        for (grad, x) in grad.iter_mut().zip(x) {
                            *grad *= slope(*x);
                        }
                    },
                );
                [Some(grad)]
            })
        },
        |[x], _| {
            let len = x.elem_count();
            let gelu = Kernel::of_each("gelu", len).reads([&x]).ints(&[len]);
            let out = gelu.fills(x.shape()).launch_one()?;
            Ok((out, move |grad: Tensor| {
                let back = Kernel::of_each("gelu_back", len).reads([&x, &grad]).ints(&[len]);
                Ok([Some(back.fills(x.shape()).launch_one()?)])
            }))
        },
    )
}

#[inline(always)]
fn argument(x: f32) -> f32 {
    SCALE * (x + CUBE * x * x * x)
}

#[inline(always)]
fn slope(x: f32) -> f32 {
    let t = tanh(argument(x));
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * (SCALE * (1.0 + 3.0 * CUBE * x * x))
}
