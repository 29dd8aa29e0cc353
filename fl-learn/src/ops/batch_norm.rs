//! Batch norm of images.

use candle_core::{Result, Tensor, Var};

use super::cuda::{Kernel, Sums};
use super::native::on_cpu;
use super::planes::{Planes, scaled};
use super::shape::expect;
use super::simd::{sum, sum_of, vectorized};
use super::slices::{self, read};
use super::tape::Tape;

/// The running statistics of a batch norm: buffers, which a training step changes. Shapes: `[channels]` each.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) mean: Var,
    /// Running variance, of divisor `n - 1`.
    pub(crate) variance: Var,
    pub(crate) momentum: f32,
}

/// Normalizes each channel over batch and positions, then scales and shifts it (Ioffe and Szegedy 2015); relu if
/// `relu`. A training step takes the batch's own statistics, and [`Tape::backward`] moves the running ones towards
/// them; an evaluation takes the running ones. Shapes: `x: [batch, channels, rows, columns]`, `w, b: [channels]`.
pub(crate) fn batch_norm(
    tape: &mut Tape,
    x: &Tensor,
    w: &Tensor,
    b: &Tensor,
    running: &Running,
    eps: f32,
    relu: bool,
) -> Result<Tensor> {
    let planes = Planes::new(x, w, b)?;
    for statistics in [&running.mean, &running.variance] {
        expect("a running statistic of a norm", statistics, &[planes.channels])?;
    }
    if tape.is_native(x) {
        looped(tape, [x, w, b], running, eps, relu, planes)
    } else {
        on_gpu(tape, [x, w, b], running, eps, relu, planes)
    }
}

fn looped(
    tape: &mut Tape,
    [x, w, b]: [&Tensor; 3],
    running: &Running,
    eps: f32,
    relu: bool,
    planes: Planes,
) -> Result<Tensor> {
    let channels = planes.channels;
    let positions = planes.positions;
    let count = planes.batch * positions;
    let training = tape.is_training();
    let stats: Vec<[f32; 2]> = if training {
        let (means, variances) = batch_statistics(&read(&x.contiguous()?)?, planes);
        let stats = inverses(&means, &variances, eps);
        let unbiased = count as f32 / (count.max(2) - 1) as f32;
        let variances = variances.iter().map(|v| v * unbiased).collect();
        let [means, variances] = [slices::tensor(means, channels)?, slices::tensor(variances, channels)?];
        running.move_towards(tape, &means, &variances)?;
        stats
    } else {
        inverses(&read(&running.mean)?, &read(&running.variance)?, eps)
    };
    tape.looped(relu, [x, w, b], x.shape(), |[x, w, b], _| {
        let mut out = vec![0.0; x.len()];
        vectorized(
            #[inline(always)]
            || {
                let planes = x.chunks_exact(positions).zip(out.chunks_exact_mut(positions));
                for (at, (x, out)) in planes.enumerate() {
                    let channel = at % channels;
                    scaled(x, out, stats[channel], w[channel], b[channel], relu);
                }
            },
        );
        (out, move |mut grad, [x, w, _]| {
            let mut dw = vec![0.0; channels];
            let mut db = vec![0.0; channels];
            vectorized(
                #[inline(always)]
                || {
                    let planes = x.chunks_exact(positions).zip(grad.chunks_exact(positions));
                    for (at, (x, grad)) in planes.enumerate() {
                        let [mean, inverse] = stats[at % channels];
                        db[at % channels] += sum(grad);
                        dw[at % channels] += sum_of(grad, x, |g, x| g * (x - mean)) * inverse;
                    }
                    // Of running statistics, which do not depend on the batch, only the scale is left.
                    let share = if training { 1.0 / count as f32 } else { 0.0 };
                    let planes = x.chunks_exact(positions).zip(grad.chunks_exact_mut(positions));
                    for (at, (x, grad)) in planes.enumerate() {
                        let channel = at % channels;
                        let [mean, inverse] = stats[channel];
                        let total = db[channel] * share;
                        let along = dw[channel] * share * inverse;
                        let factor = w[channel] * inverse;
                        for (g, x) in grad.iter_mut().zip(x) {
                            *g = (*g - total - (x - mean) * along) * factor;
                        }
                    }
                },
            );
            [Some(grad), Some(dw), Some(db)]
        })
    })
}

fn on_gpu(
    tape: &mut Tape,
    inputs: [&Tensor; 3],
    running: &Running,
    eps: f32,
    relu: bool,
    planes: Planes,
) -> Result<Tensor> {
    let channels = planes.channels;
    let positions = planes.positions;
    let len = inputs[0].elem_count();
    let count = planes.batch * positions;
    let (stats, share) = if tape.is_training() {
        let x = inputs[0].detach();
        let [stats, means, variances] = Kernel::of_rows("channel_statistics", channels, count)
            .reads([&x])
            .ints(&[planes.batch, positions])
            .float(eps)
            .fills((channels, 2))
            .fills(channels)
            .fills(channels)
            .launch()?;
        let unbiased = (variances * (count as f64 / (count.max(2) - 1) as f64))?;
        running.move_towards(tape, &means, &unbiased)?;
        (stats, 1.0 / count as f32)
    } else {
        let [mean, variance] = [&running.mean, &running.variance].map(|t| t.as_tensor().detach());
        let inverse = (variance + f64::from(eps))?.sqrt()?.recip()?;
        (Tensor::stack(&[mean, inverse], 1)?, 0.0)
    };
    tape.on_gpu(relu, inputs, |[x, w, b], wanted| {
        let out = Kernel::of_each("channel_norm", len)
            .reads([&x, &w, &b, &stats])
            .ints(&[channels, positions, len, relu.into()])
            .fills(x.shape())
            .launch_one()?;
        Ok((out, move |grad: Tensor| {
            let sums = Sums::of_channels(&grad, channels, positions, 0);
            let [db, dw] = sums.with_products([&grad, &x, &stats])?;
            let dx = || {
                Kernel::of_each("channel_norm_dx", len)
                    .reads([&x, &w, &stats, &grad, &db, &dw])
                    .ints(&[channels, positions, len])
                    .float(share)
                    .fills(x.shape())
                    .launch_one()
            };
            let dx = wanted[0].then(dx).transpose()?;
            Ok([dx, Some(dw), Some(db)])
        }))
    })
}

impl Running {
    /// At the end of the backward pass: `running = (1 - momentum) running + momentum own`. Shapes: `[channels]`.
    fn move_towards(&self, tape: &mut Tape, mean: &Tensor, variance: &Tensor) -> Result<()> {
        let momentum = tape.momentum(self.momentum);
        for (running, own) in [(&self.mean, mean), (&self.variance, variance)] {
            let before = running.as_tensor().detach();
            let after = if on_cpu(own) {
                let before = read(&before)?;
                let values = read(own)?;
                let pairs = before.iter().zip(values.iter());
                let blended = pairs.map(|(before, own)| (1.0 - momentum) * before + momentum * own);
                slices::tensor(blended.collect(), own.shape())?
            } else {
                ((before * f64::from(1.0 - momentum))? + (own.detach() * f64::from(momentum))?)?
            };
            tape.set_after(running, after);
        }
        Ok(())
    }
}

fn inverses(means: &[f32], variances: &[f32], eps: f32) -> Vec<[f32; 2]> {
    let pairs = means.iter().zip(variances);
    pairs
        .map(|(mean, variance)| [*mean, 1.0 / (variance + eps).sqrt()])
        .collect()
}

fn batch_statistics(values: &[f32], planes: Planes) -> (Vec<f32>, Vec<f32>) {
    let channels = planes.channels;
    let positions = planes.positions;
    let count = (planes.batch * positions) as f32;
    vectorized(
        #[inline(always)]
        || {
            let mut means = vec![0.0f32; channels];
            let mut variances = vec![0.0f32; channels];
            for (at, x) in values.chunks_exact(positions).enumerate() {
                means[at % channels] += sum(x);
            }
            means.iter_mut().for_each(|mean| *mean /= count);
            for (at, x) in values.chunks_exact(positions).enumerate() {
                let mean = means[at % channels];
                variances[at % channels] += sum_of(x, x, |x, _| (x - mean) * (x - mean));
            }
            variances.iter_mut().for_each(|variance| *variance /= count);
            (means, variances)
        },
    )
}
