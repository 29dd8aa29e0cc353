//! Group norm of images.

use candle_core::{Result, Tensor, bail};

use super::cuda::RowNorm;
use super::layer_norm::statistics;
use super::planes::{Planes, scaled};
use super::simd::{dot, sum, vectorized};
use super::tape::Tape;

/// Normalizes each example's channels in `groups` groups, then scales and shifts each channel (Wu and He 2018); relu
/// if `relu`. Shapes: `x: [batch, channels, rows, columns]`, `w, b: [channels]`.
pub(crate) fn group_norm(
    tape: &mut Tape,
    x: &Tensor,
    w: &Tensor,
    b: &Tensor,
    groups: usize,
    eps: f32,
    relu: bool,
) -> Result<Tensor> {
    let planes = Planes::new(x, w, b)?;
    let Planes {
        batch,
        channels,
        positions,
    } = planes;
    if groups == 0 || !channels.is_multiple_of(groups) {
        bail!("{groups} groups of {channels} channels");
    }
    let each = channels / groups;
    let len = each * positions;
    if tape.is_native(x) {
        return tape.looped(relu, [x, w, b], x.shape(), |[x, w, b], _| {
            let mut out = vec![0.0; x.len()];
            let mut stats = vec![[0.0f32; 2]; batch * groups];
            vectorized(
                #[inline(always)]
                || {
                    let stretches = x.chunks_exact(len).zip(out.chunks_exact_mut(len));
                    for (at, ((x, out), stat)) in stretches.zip(&mut stats).enumerate() {
                        *stat = statistics(x, eps);
                        let planes = x.chunks_exact(positions).zip(out.chunks_exact_mut(positions));
                        for (channel, (x, out)) in planes.enumerate() {
                            let channel = at % groups * each + channel;
                            scaled(x, out, *stat, w[channel], b[channel], relu);
                        }
                    }
                },
            );
            (out, move |mut grad, [x, w, _]| {
                let mut dw = vec![0.0; channels];
                let mut db = vec![0.0; channels];
                let mut normal = vec![0.0; len];
                vectorized(
                    #[inline(always)]
                    || {
                        let stretches = x.chunks_exact(len).zip(grad.chunks_exact_mut(len));
                        for (at, ((x, grad), [mean, inverse])) in stretches.zip(&stats).enumerate() {
                            for (n, x) in normal.iter_mut().zip(x) {
                                *n = (x - mean) * inverse;
                            }
                            let mut total = 0.0;
                            let mut along = 0.0;
                            let planes = normal.chunks_exact(positions).zip(grad.chunks_exact_mut(positions));
                            for (channel, (normal, grad)) in planes.enumerate() {
                                let channel = at % groups * each + channel;
                                let shift = sum(grad);
                                let product = dot(grad, normal);
                                db[channel] += shift;
                                dw[channel] += product;
                                total += shift * w[channel];
                                along += product * w[channel];
                                for g in grad {
                                    *g *= w[channel];
                                }
                            }
                            let total = total / len as f32;
                            let along = along / len as f32;
                            for (g, n) in grad.iter_mut().zip(&normal) {
                                *g = (*g - total - n * along) * inverse;
                            }
                        }
                    },
                );
                [Some(grad), Some(dw), Some(db)]
            })
        });
    }
    tape.on_gpu(relu, [x, w, b], |[x, w, b], wanted| {
        let norm = RowNorm {
            dim: len,
            positions,
            groups,
            eps,
            centered: true,
            with_relu: relu,
        };
        let [out, stats] = norm.forward(&x, &w, Some(&b))?;
        Ok((out, move |grad: Tensor| norm.backward([&x, &w, &stats, &grad], wanted)))
    })
}
