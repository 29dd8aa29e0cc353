//! Group norm and batch norm of images.

use candle_core::{Result, Tensor, Var, bail};

use super::native::on_cpu;
use super::simd::{dot, sum, sum_of, vectorized};
use super::slices::{self, read};
use super::tape::Tape;
use super::tensors::{Normal, off_where_zero};

/// Normalizes each example's channels in `groups` groups, then scales and shifts each channel (Wu and He 2018); relu
/// if `relu`. Shapes: `x: [batch, channels, rows, columns]`, `w, b: [channels]`.
///
/// # Errors
/// If the shapes do not agree or the channels are not a multiple of the groups.
pub fn group_norm(
    tape: &mut Tape,
    x: &Tensor,
    w: &Tensor,
    b: &Tensor,
    groups: usize,
    eps: f32,
    relu: bool,
) -> Result<Tensor> {
    let shape = Planes::new(x, w, b)?;
    if groups == 0 || !shape.channels.is_multiple_of(groups) {
        bail!("{groups} groups of {} channels", shape.channels);
    }
    if !tape.is_native(x) {
        let rows = (shape.batch * groups, shape.channels / groups * shape.positions);
        let normal = Normal::new(&x.detach().reshape(rows)?, eps, true)?;
        let values = normal.values.reshape(x.shape())?;
        let input_grad = move |grad: &Tensor| normal.backward(&grad.reshape(rows)?)?.reshape(grad.shape());
        return shape.affine(tape, [x, w, b], values, relu, input_grad);
    }
    let each = shape.channels / groups;
    let len = each * shape.positions;
    let (values, scale, shift) = (read(x)?, read(w)?, read(b)?);
    let (mut out, mut stats) = (vec![0.0; values.len()], vec![[0.0f32; 2]; shape.batch * groups]);
    vectorized(
        #[inline(always)]
        || {
            let stretches = values.chunks_exact(len).zip(out.chunks_exact_mut(len));
            for (at, ((x, out), stat)) in stretches.zip(&mut stats).enumerate() {
                *stat = statistics(x, eps);
                let planes = x
                    .chunks_exact(shape.positions)
                    .zip(out.chunks_exact_mut(shape.positions));
                for (channel, (x, out)) in planes.enumerate() {
                    let channel = at % groups * each + channel;
                    scaled(x, out, *stat, scale[channel], shift[channel], relu);
                }
            }
        },
    );
    let out = slices::tensor(out, x.shape())?;
    let y = relu.then(|| out.clone());
    Ok(tape.looped([x, w, b], out, move |mut grad, [values, scale, _], _| {
        let (mut dw, mut db) = (vec![0.0; shape.channels], vec![0.0; shape.channels]);
        let mut normal = vec![0.0; len];
        off_where_off(&mut grad, y.as_ref())?;
        vectorized(
            #[inline(always)]
            || {
                let stretches = values.chunks_exact(len).zip(grad.chunks_exact_mut(len));
                for (at, ((x, grad), [mean, inverse])) in stretches.zip(&stats).enumerate() {
                    for (n, x) in normal.iter_mut().zip(x) {
                        *n = (x - mean) * inverse;
                    }
                    let (mut total, mut along) = (0.0, 0.0);
                    let planes = normal
                        .chunks_exact(shape.positions)
                        .zip(grad.chunks_exact_mut(shape.positions));
                    for (channel, (normal, grad)) in planes.enumerate() {
                        let channel = at % groups * each + channel;
                        let (shift, product) = (sum(grad), dot(grad, normal));
                        db[channel] += shift;
                        dw[channel] += product;
                        total += shift * scale[channel];
                        along += product * scale[channel];
                        grad.iter_mut().for_each(|g| *g *= scale[channel]);
                    }
                    let (total, along) = (total / len as f32, along / len as f32);
                    for (g, n) in grad.iter_mut().zip(&normal) {
                        *g = (*g - total - n * along) * inverse;
                    }
                }
            },
        );
        Ok([Some(grad), Some(dw), Some(db)])
    }))
}

/// The running statistics of a batch norm: buffers, which a training step changes. Shapes: `[channels]` each.
#[derive(Debug, Clone)]
pub struct Running {
    /// Running mean.
    pub mean: Var,
    /// Running variance, of divisor `n - 1`.
    pub variance: Var,
    /// Share of the batch's own statistics in the new running ones.
    pub momentum: f32,
}

/// Normalizes each channel over batch and positions, then scales and shifts it (Ioffe and Szegedy 2015); relu if
/// `relu`. A training step takes the batch's own statistics, and [`Tape::backward`] moves the running ones towards
/// them; an evaluation takes the running ones. Shapes: `x: [batch, channels, rows, columns]`, `w, b: [channels]`.
///
/// # Errors
/// If the shapes do not agree.
pub fn batch_norm(
    tape: &mut Tape,
    x: &Tensor,
    w: &Tensor,
    b: &Tensor,
    running: &Running,
    eps: f32,
    relu: bool,
) -> Result<Tensor> {
    let shape = Planes::new(x, w, b)?;
    let Planes {
        channels,
        positions,
        batch,
    } = shape;
    if running.mean.dims() != [channels] || running.variance.dims() != [channels] {
        bail!(
            "running statistics {:?} do not suit input {:?}",
            running.mean.dims(),
            x.dims()
        );
    }
    let (count, momentum) = (batch * positions, tape.momentum(running.momentum));
    if !tape.is_native(x) {
        if !tape.is_training() {
            let per_channel = |t: &Tensor| t.detach().reshape((1, channels, 1, 1));
            let deviation = (per_channel(&running.variance)? + f64::from(eps))?.sqrt()?;
            let apart = x.detach().broadcast_sub(&per_channel(&running.mean)?)?;
            let values = apart.broadcast_div(&deviation)?;
            return shape.affine(tape, [x, w, b], values, relu, move |grad| {
                grad.broadcast_div(&deviation)
            });
        }
        let by_channel = x.detach().transpose(0, 1)?;
        let normal = Normal::new(&by_channel.reshape((channels, count))?, eps, true)?;
        if let Some(mean) = &normal.mean {
            let mean = blend(&running.mean, &mean.flatten_all()?, momentum)?;
            tape.set_after(&running.mean, mean);
        }
        let unbiased = (normal.variance.flatten_all()? * (count as f64 / (count.max(2) - 1) as f64))?;
        let variance = blend(&running.variance, &unbiased, momentum)?;
        tape.set_after(&running.variance, variance);
        let values = normal
            .values
            .reshape(by_channel.shape())?
            .transpose(0, 1)?
            .contiguous()?;
        let input_grad = move |grad: &Tensor| {
            let grad = grad.transpose(0, 1)?;
            let flat = normal.backward(&grad.reshape((channels, count))?)?;
            flat.reshape(grad.shape())?.transpose(0, 1)?.contiguous()
        };
        return shape.affine(tape, [x, w, b], values, relu, input_grad);
    }
    let (values, scale, shift) = (read(x)?, read(w)?, read(b)?);
    let training = tape.is_training();
    let stats: Vec<[f32; 2]> = if training {
        let (stats, variances) = batch_statistics(&values, shape, eps);
        let unbiased = count as f32 / (count.max(2) - 1) as f32;
        let means = slices::tensor(stats.iter().map(|[mean, _]| *mean).collect(), channels)?;
        let variances = slices::tensor(variances.iter().map(|v| v * unbiased).collect(), channels)?;
        tape.set_after(&running.mean, blend(&running.mean, &means, momentum)?);
        tape.set_after(&running.variance, blend(&running.variance, &variances, momentum)?);
        stats
    } else {
        let (means, variances) = (read(&running.mean)?, read(&running.variance)?);
        let pairs = means.iter().zip(variances.iter());
        pairs
            .map(|(mean, variance)| [*mean, 1.0 / (variance + eps).sqrt()])
            .collect()
    };
    let mut out = vec![0.0; values.len()];
    vectorized(
        #[inline(always)]
        || {
            let planes = values.chunks_exact(positions).zip(out.chunks_exact_mut(positions));
            for (at, (x, out)) in planes.enumerate() {
                let channel = at % channels;
                scaled(x, out, stats[channel], scale[channel], shift[channel], relu);
            }
        },
    );
    let out = slices::tensor(out, x.shape())?;
    let y = relu.then(|| out.clone());
    Ok(tape.looped([x, w, b], out, move |mut grad, [values, scale, _], _| {
        let (mut dw, mut db) = (vec![0.0; channels], vec![0.0; channels]);
        off_where_off(&mut grad, y.as_ref())?;
        vectorized(
            #[inline(always)]
            || {
                let planes = values.chunks_exact(positions).zip(grad.chunks_exact(positions));
                for (at, (x, grad)) in planes.enumerate() {
                    let [mean, inverse] = stats[at % channels];
                    db[at % channels] += sum(grad);
                    dw[at % channels] += sum_of(grad, x, |g, x| g * (x - mean)) * inverse;
                }
                // Of running statistics, which do not depend on the batch, only the scale is left.
                let share = if training { 1.0 / count as f32 } else { 0.0 };
                let planes = values.chunks_exact(positions).zip(grad.chunks_exact_mut(positions));
                for (at, (x, grad)) in planes.enumerate() {
                    let channel = at % channels;
                    let [mean, inverse] = stats[channel];
                    let (total, along) = (db[channel] * share, dw[channel] * share * inverse);
                    let factor = scale[channel] * inverse;
                    for (g, x) in grad.iter_mut().zip(x) {
                        *g = (*g - total - (x - mean) * along) * factor;
                    }
                }
            },
        );
        Ok([Some(grad), Some(dw), Some(db)])
    }))
}

/// No gradient flows where relu was off: where its result `y` is not above 0.
fn off_where_off(grad: &mut [f32], y: Option<&Tensor>) -> Result<()> {
    let Some(y) = y else { return Ok(()) };
    let y = read(y)?;
    vectorized(
        #[inline(always)]
        || {
            for (g, y) in grad.iter_mut().zip(y.iter()) {
                *g = if *y > 0.0 { *g } else { 0.0 };
            }
        },
    );
    Ok(())
}

/// `running = (1 - momentum) running + momentum own`.
fn blend(running: &Var, own: &Tensor, momentum: f32) -> Result<Tensor> {
    let running = running.as_tensor().detach();
    if on_cpu(own) {
        let (running, values) = (read(&running)?, read(own)?);
        let pairs = running.iter().zip(values.iter());
        let blended = pairs.map(|(running, own)| (1.0 - momentum) * running + momentum * own);
        return slices::tensor(blended.collect(), own.shape());
    }
    (running * f64::from(1.0 - momentum))? + (own.detach() * f64::from(momentum))?
}

/// Mean and inverse deviation of each channel, and its variance.
fn batch_statistics(values: &[f32], shape: Planes, eps: f32) -> (Vec<[f32; 2]>, Vec<f32>) {
    let Planes {
        channels,
        positions,
        batch,
    } = shape;
    let count = (batch * positions) as f32;
    vectorized(
        #[inline(always)]
        || {
            let (mut means, mut variances) = (vec![0.0f32; channels], vec![0.0f32; channels]);
            for (at, x) in values.chunks_exact(positions).enumerate() {
                means[at % channels] += sum(x);
            }
            means.iter_mut().for_each(|mean| *mean /= count);
            for (at, x) in values.chunks_exact(positions).enumerate() {
                let mean = means[at % channels];
                variances[at % channels] += sum_of(x, x, |x, _| (x - mean) * (x - mean));
            }
            variances.iter_mut().for_each(|variance| *variance /= count);
            let stats = means.iter().zip(&variances);
            let stats = stats
                .map(|(mean, variance)| [*mean, 1.0 / (variance + eps).sqrt()])
                .collect();
            (stats, variances)
        },
    )
}

/// Mean and inverse deviation.
#[inline(always)]
fn statistics(x: &[f32], eps: f32) -> [f32; 2] {
    let mean = sum(x) / x.len() as f32;
    let variance = sum_of(x, x, |x, _| (x - mean) * (x - mean)) / x.len() as f32;
    [mean, 1.0 / (variance + eps).sqrt()]
}

#[inline(always)]
fn scaled(x: &[f32], out: &mut [f32], [mean, inverse]: [f32; 2], w: f32, b: f32, relu: bool) {
    let (factor, term) = (inverse * w, b - mean * inverse * w);
    if relu {
        for (out, x) in out.iter_mut().zip(x) {
            let y = x * factor + term;
            // NaN stays, so that a loss shows it.
            *out = if y < 0.0 { 0.0 } else { y };
        }
    } else {
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x * factor + term);
    }
}

#[derive(Debug, Clone, Copy)]
struct Planes {
    batch: usize,
    channels: usize,
    positions: usize,
}

impl Planes {
    fn new(x: &Tensor, w: &Tensor, b: &Tensor) -> Result<Self> {
        let (batch, channels, rows, columns) = x.dims4()?;
        if w.dims() != [channels] || b.dims() != [channels] || x.elem_count() == 0 {
            bail!(
                "scale {:?} and shift {:?} do not suit input {:?}",
                w.dims(),
                b.dims(),
                x.dims()
            );
        }
        Ok(Self {
            batch,
            channels,
            positions: rows * columns,
        })
    }

    /// On other devices: scale, shift and relu of normalized `values` of `x`. `input_grad` gives the gradient of `x` for theirs.
    fn affine(
        self,
        tape: &mut Tape,
        [x, w, b]: [&Tensor; 3],
        values: Tensor,
        relu: bool,
        input_grad: impl FnOnce(&Tensor) -> Result<Tensor> + Send + 'static,
    ) -> Result<Tensor> {
        let per_channel = move |t: &Tensor| t.detach().reshape((1, self.channels, 1, 1));
        let out = values
            .broadcast_mul(&per_channel(w)?)?
            .broadcast_add(&per_channel(b)?)?;
        let out = if relu { out.relu()? } else { out };
        let (scale, y) = (per_channel(w)?, relu.then(|| out.clone()));
        Ok(tape.composition([x, w, b], out, move |grad, wanted| {
            let grad = off_where_zero(grad, y.as_ref())?;
            let db = wanted[2].then(|| grad.sum((0, 2, 3))).transpose()?;
            let dw = wanted[1].then(|| (&grad * &values)?.sum((0, 2, 3))).transpose()?;
            let dx = wanted[0]
                .then(|| input_grad(&grad.broadcast_mul(&scale)?))
                .transpose()?;
            Ok([dx, dw, db])
        }))
    }
}
