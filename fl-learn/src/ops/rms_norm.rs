//! RMS norm over the last dimension.

use candle_core::{Result, Tensor};

use super::cuda::RowNorm;
use super::layer_norm::row_shape;
use super::simd::{dot, vectorized};
use super::tape::Tape;

/// `x / sqrt(mean(x^2) + eps) * w` of each row (Zhang and Sennrich 2019). Shapes: `x: [rows, dim]`, `w: [dim]`.
pub(crate) fn rms_norm(tape: &mut Tape, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
    let (rows, dim) = row_shape(x, w)?;
    tape.apply(
        [x, w],
        x.shape(),
        |[x, w], _| {
            let mut out = vec![0.0; x.len()];
            let mut inverses = vec![0.0f32; rows];
            vectorized(
                #[inline(always)]
                || {
                    let rows = x.chunks_exact(dim).zip(out.chunks_exact_mut(dim));
                    for ((x, out), inverse) in rows.zip(&mut inverses) {
                        *inverse = 1.0 / (dot(x, x) / dim as f32 + eps).sqrt();
                        for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
                            *out = x * *inverse * w;
                        }
                    }
                },
            );
            (out, move |mut grad, [x, w]| {
                let mut dw = vec![0.0; dim];
                let mut normal = vec![0.0; dim];
                vectorized(
                    #[inline(always)]
                    || {
                        let rows = x.chunks_exact(dim).zip(grad.chunks_exact_mut(dim));
                        for ((x, grad), inverse) in rows.zip(&inverses) {
                            for (n, x) in normal.iter_mut().zip(x) {
                                *n = x * inverse;
                            }
                            for (((dw, g), n), w) in dw.iter_mut().zip(grad.iter_mut()).zip(&normal).zip(w) {
                                *dw += *g * n;
                                *g *= w;
                            }
                            let along = dot(grad, &normal) / dim as f32;
                            for (g, n) in grad.iter_mut().zip(&normal) {
                                *g = (*g - n * along) * inverse;
                            }
                        }
                    },
                );
                [Some(grad), Some(dw)]
            })
        },
        |[x, w], wanted| {
            let norm = RowNorm::of_tokens(dim, eps, false);
            let [out, stats] = norm.forward(&x, &w, None)?;
            Ok((out, move |grad: Tensor| {
                let [dx, dw, _] = norm.backward([&x, &w, &stats, &grad], [wanted[0], wanted[1], false])?;
                Ok([dx, dw])
            }))
        },
    )
}
