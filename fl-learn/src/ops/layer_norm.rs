//! Layer norm over the last dimension.

use candle_core::{Result, Tensor, bail};

use super::cuda::RowNorm;
use super::shape::expect;
use super::simd::{dot, sum, sum_of, vectorized};
use super::tape::Tape;

/// `(x - mean) / sqrt(variance + eps) * w + b` of each row (Ba et al. 2016). Shapes: `x: [rows, dim]`, `w, b: [dim]`.
pub(crate) fn layer_norm(tape: &mut Tape, x: &Tensor, w: &Tensor, b: &Tensor, eps: f32) -> Result<Tensor> {
    let (rows, dim) = row_shape(x, w)?;
    expect("the shift of a norm", b, &[dim])?;
    tape.apply(
        [x, w, b],
        x.shape(),
        |[x, w, b], _| {
            let mut out = vec![0.0; x.len()];
            let mut stats = vec![[0.0f32; 2]; rows];
            vectorized(
                #[inline(always)]
                || {
                    let rows = x.chunks_exact(dim).zip(out.chunks_exact_mut(dim));
                    for ((x, out), stat) in rows.zip(&mut stats) {
                        let [mean, inverse] = statistics(x, eps);
                        for (((out, x), w), b) in out.iter_mut().zip(x).zip(w).zip(b) {
                            *out = (x - mean) * inverse * w + b;
                        }
                        *stat = [mean, inverse];
                    }
                },
            );
            (out, move |mut grad, [x, w, _]| {
                let mut dw = vec![0.0; dim];
                let mut db = vec![0.0; dim];
                let mut normal = vec![0.0; dim];
                vectorized(
                    #[inline(always)]
                    || {
                        let rows = x.chunks_exact(dim).zip(grad.chunks_exact_mut(dim));
                        for ((x, grad), [mean, inverse]) in rows.zip(&stats) {
                            for (n, x) in normal.iter_mut().zip(x) {
                                *n = (x - mean) * inverse;
                            }
                            for (((dw, db), g), n) in dw.iter_mut().zip(&mut db).zip(&*grad).zip(&normal) {
                                *dw += g * n;
                                *db += g;
                            }
                            for (g, w) in grad.iter_mut().zip(w) {
                                *g *= w;
                            }
                            let mean = sum(grad) / dim as f32;
                            let along = dot(grad, &normal) / dim as f32;
                            for (g, n) in grad.iter_mut().zip(&normal) {
                                *g = (*g - mean - n * along) * inverse;
                            }
                        }
                    },
                );
                [Some(grad), Some(dw), Some(db)]
            })
        },
        |[x, w, b], wanted| {
            let norm = RowNorm::of_tokens(dim, eps, true);
            let [out, stats] = norm.forward(&x, &w, Some(&b))?;
            Ok((out, move |grad: Tensor| norm.backward([&x, &w, &stats, &grad], wanted)))
        },
    )
}

/// Rows and their width, if the scale `w` of a norm suits `x`.
pub(super) fn row_shape(x: &Tensor, w: &Tensor) -> Result<(usize, usize)> {
    let (rows, dim) = x.dims2()?;
    expect("the scale of a norm", w, &[dim])?;
    if dim == 0 {
        bail!("the norm of no value: {:?}", x.dims());
    }
    Ok((rows, dim))
}

/// Mean and inverse deviation.
#[inline(always)]
pub(super) fn statistics(x: &[f32], eps: f32) -> [f32; 2] {
    let mean = sum(x) / x.len() as f32;
    let variance = sum_of(x, x, |x, _| (x - mean) * (x - mean)) / x.len() as f32;
    [mean, 1.0 / (variance + eps).sqrt()]
}
