//! Operations on each value: sums, activations, dropout.

use candle_core::{Result, Tensor, bail};

use super::cuda::upload;
use super::simd::{sigmoid, tanh, vectorized};
use super::slices::{self, read};
use super::tape::Tape;
use super::tensors;
use crate::data::Rng;

/// `a + b`, as at the end of a residual block, then relu if `relu`. Shapes: `a` and `b` alike.
///
/// # Errors
/// If the shapes differ.
pub fn add(tape: &mut Tape, a: &Tensor, b: &Tensor, relu: bool) -> Result<Tensor> {
    if a.dims() != b.dims() {
        bail!("a sum of {:?} and {:?}", a.dims(), b.dims());
    }
    if !tape.is_native(a) {
        let sum = (a.detach() + b.detach())?;
        let out = if relu { sum.relu()? } else { sum };
        if tape.wants_any(&[a, b]) {
            let inputs = [a, b].map(|x| tape.wants(x).then(|| x.id()));
            let y = relu.then(|| out.clone());
            tape.record_composed(&out, move |grad, grads| {
                let grad = tensors::off_where_zero(grad, y.as_ref())?;
                inputs
                    .into_iter()
                    .flatten()
                    .try_for_each(|x| grads.add(x, grad.clone()))
            });
        }
        return Ok(out);
    }
    let (x, y) = (read(a)?, read(b)?);
    let sum = x.iter().zip(y.iter()).map(|(x, y)| x + y);
    let out: Vec<f32> = match relu {
        true => sum.map(positive).collect(),
        false => sum.collect(),
    };
    let out = slices::tensor(out, a.shape())?;
    if tape.wants_any(&[a, b]) {
        let wanted = [tape.wants(a), tape.wants(b)];
        let (a, b, y) = (a.clone(), b.clone(), relu.then(|| out.clone()));
        tape.record(&out, move |mut grad, grads| {
            if let Some(y) = y {
                off_where_zero(&mut grad, &read(&y)?);
            }
            if wanted == [true, true] {
                grads.add(&a, grad.clone());
            }
            grads.add(if wanted[1] { &b } else { &a }, grad);
            Ok(())
        });
    }
    Ok(out)
}

/// `a + scale b`, as where an adapter's share is added to a layer's output. Shapes: `a` and `b` alike.
///
/// # Errors
/// If the shapes differ.
pub fn add_scaled(tape: &mut Tape, a: &Tensor, b: &Tensor, scale: f32) -> Result<Tensor> {
    if a.dims() != b.dims() {
        bail!("a sum of {:?} and {:?}", a.dims(), b.dims());
    }
    if !tape.is_native(a) {
        let out = (a.detach() + (b.detach() * f64::from(scale))?)?;
        let wanted = [tape.wants(a), tape.wants(b)];
        if wanted.contains(&true) {
            let (a, b) = (a.id(), b.id());
            tape.record_composed(&out, move |grad, grads| {
                if wanted[1] {
                    grads.add(b, (&grad * f64::from(scale))?)?;
                }
                match wanted[0] {
                    true => grads.add(a, grad),
                    false => Ok(()),
                }
            });
        }
        return Ok(out);
    }
    let out = read(a)?
        .iter()
        .zip(read(b)?.iter())
        .map(|(x, y)| x + scale * y)
        .collect();
    let out = slices::tensor(out, a.shape())?;
    if tape.wants_any(&[a, b]) {
        let wanted = [tape.wants(a), tape.wants(b)];
        let (a, b) = (a.clone(), b.clone());
        tape.record(&out, move |grad, grads| {
            if wanted[1] {
                grads.add(&b, grad.iter().map(|g| g * scale).collect());
            }
            grads.add_some(&a, Some(grad).filter(|_| wanted[0]));
            Ok(())
        });
    }
    Ok(out)
}

/// Relu: 0 below 0.
///
/// # Errors
/// If the tensor is not contiguous `f32`.
pub fn relu(tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
    if !tape.is_native(x) {
        let out = x.detach().relu()?;
        let y = out.clone();
        return composed(tape, x, out, move |grad| tensors::off_where_zero(grad, Some(&y)));
    }
    let out: Vec<f32> = read(x)?.iter().copied().map(positive).collect();
    let out = slices::tensor(out, x.shape())?;
    if tape.wants(x) {
        let (x, y) = (x.clone(), out.clone());
        tape.record(&out, move |mut grad, grads| {
            off_where_zero(&mut grad, &read(&y)?);
            grads.add(&x, grad);
            Ok(())
        });
    }
    Ok(out)
}

/// Keeps NaN, so that a loss shows it.
fn positive(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

fn off_where_zero(grad: &mut [f32], y: &[f32]) {
    let pairs = grad.iter_mut().zip(y);
    pairs.for_each(|(g, y)| *g = if *y > 0.0 { *g } else { 0.0 });
}

/// `x` times an approximation of the normal distribution's cumulative function by `tanh`, as in GPT-2 (Hendrycks and
/// Gimpel 2016, section 2).
///
/// # Errors
/// If the tensor is not contiguous `f32`.
pub fn gelu(tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
    if !tape.is_native(x) {
        let values = x.detach();
        return composed(tape, x, values.gelu()?, move |grad| {
            let (scale, cube) = (f64::from(GELU_SCALE), f64::from(GELU_CUBE));
            let squares = values.sqr()?;
            let t = (squares.affine(scale * cube, scale)? * &values)?.tanh()?;
            let turning = (t.sqr()?.affine(-0.5, 0.5)? * &values)?;
            let steep = (turning * squares.affine(3.0 * scale * cube, scale)?)?;
            grad * (t.affine(0.5, 0.5)? + steep)?
        });
    }
    activation(
        tape,
        x,
        #[inline(always)]
        |x| 0.5 * x * (1.0 + tanh(gelu_argument(x))),
        #[inline(always)]
        |x| {
            let t = tanh(gelu_argument(x));
            let slope = GELU_SCALE * (1.0 + 3.0 * GELU_CUBE * x * x);
            0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope
        },
    )
}

/// `sqrt(2 / pi)`.
const GELU_SCALE: f32 = 0.797_884_6;
const GELU_CUBE: f32 = 0.044_715;

#[inline(always)]
fn gelu_argument(x: f32) -> f32 {
    GELU_SCALE * (x + GELU_CUBE * x * x * x)
}

/// `x sigmoid(x)` (Elfwing et al. 2017).
///
/// # Errors
/// If the tensor is not contiguous `f32`.
pub fn silu(tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
    if !tape.is_native(x) {
        let values = x.detach();
        return composed(tape, x, values.silu()?, move |grad| {
            grad * composed_silu_slope(&values)?
        });
    }
    activation(
        tape,
        x,
        #[inline(always)]
        |x| x * sigmoid(x),
        silu_slope,
    )
}

#[inline(always)]
fn silu_slope(x: f32) -> f32 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}

/// `silu(gate) up`, as in the gated feed-forward layer of Llama (Shazeer 2020). Shapes: `gate` and `up` alike.
///
/// # Errors
/// If the shapes differ.
pub fn silu_gate(tape: &mut Tape, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.dims() != up.dims() {
        bail!("a gate of {:?} for {:?}", gate.dims(), up.dims());
    }
    if !tape.is_native(gate) {
        let (values, factors) = (gate.detach(), up.detach());
        let opening = values.silu()?;
        let out = (&opening * &factors)?;
        let wanted = [tape.wants(gate), tape.wants(up)];
        if wanted.contains(&true) {
            let (gate, up) = (gate.id(), up.id());
            tape.record_composed(&out, move |grad, grads| {
                if wanted[0] {
                    grads.add(gate, ((&grad * factors)? * composed_silu_slope(&values)?)?)?;
                }
                match wanted[1] {
                    true => grads.add(up, (grad * opening)?),
                    false => Ok(()),
                }
            });
        }
        return Ok(out);
    }
    let (g, u) = (read(gate)?, read(up)?);
    let mut out = vec![0.0; g.len()];
    vectorized(
        #[inline(always)]
        || {
            for ((out, g), u) in out.iter_mut().zip(g.iter()).zip(u.iter()) {
                *out = g * sigmoid(*g) * u;
            }
        },
    );
    let out = slices::tensor(out, gate.shape())?;
    if tape.wants_any(&[gate, up]) {
        let (gate, up, wanted) = (gate.clone(), up.clone(), [tape.wants(gate), tape.wants(up)]);
        tape.record(&out, move |mut grad, grads| {
            let (g, u) = (read(&gate)?, read(&up)?);
            let mut d_gate = vec![0.0; g.len()];
            vectorized(
                #[inline(always)]
                || {
                    for (((grad, d), g), u) in grad.iter_mut().zip(&mut d_gate).zip(g.iter()).zip(u.iter()) {
                        *d = *grad * u * silu_slope(*g);
                        *grad *= g * sigmoid(*g);
                    }
                },
            );
            grads.add_some(&gate, Some(d_gate).filter(|_| wanted[0]));
            grads.add_some(&up, Some(grad).filter(|_| wanted[1]));
            Ok(())
        });
    }
    Ok(out)
}

/// Records on other devices that `out` was computed from `x`. `backward` gives the gradient of `x` for that of `out`.
fn composed(
    tape: &mut Tape,
    x: &Tensor,
    out: Tensor,
    backward: impl FnOnce(Tensor) -> Result<Tensor> + Send + 'static,
) -> Result<Tensor> {
    if tape.wants(x) {
        let x = x.id();
        tape.record_composed(&out, move |grad, grads| grads.add(x, backward(grad)?));
    }
    Ok(out)
}

/// As [`silu_slope`], of every value.
fn composed_silu_slope(x: &Tensor) -> Result<Tensor> {
    let s = x.affine(0.5, 0.0)?.tanh()?.affine(0.5, 0.5)?;
    &s * ((x * (1.0 - &s)?)? + 1.0)?
}

#[inline(always)]
fn activation(
    tape: &mut Tape,
    x: &Tensor,
    value: impl Fn(f32) -> f32,
    slope: impl Fn(f32) -> f32 + Send + 'static,
) -> Result<Tensor> {
    let values = read(x)?;
    let mut out = vec![0.0; values.len()];
    vectorized(
        #[inline(always)]
        || {
            for (out, x) in out.iter_mut().zip(values.iter()) {
                *out = value(*x);
            }
        },
    );
    let out = slices::tensor(out, x.shape())?;
    if tape.wants(x) {
        let x = x.clone();
        tape.record(&out, move |mut grad, grads| {
            let values = read(&x)?;
            vectorized(
                #[inline(always)]
                || {
                    for (grad, x) in grad.iter_mut().zip(values.iter()) {
                        *grad *= slope(*x);
                    }
                },
            );
            grads.add(&x, grad);
            Ok(())
        });
    }
    Ok(out)
}

/// In a training step, sets each value to 0 with this `probability`, otherwise divides it by the probability of being
/// kept (Srivastava et al. 2014). `x` itself in an evaluation.
///
/// # Errors
/// If the tensor is not contiguous `f32`, or the probability is not in [0, 1).
pub fn dropout(tape: &mut Tape, x: &Tensor, probability: f32) -> Result<Tensor> {
    if !(0.0..1.0).contains(&probability) {
        bail!("a dropout of {probability}");
    }
    let Some(seed) = tape.draw().filter(|_| probability > 0.0) else {
        return Ok(x.clone());
    };
    if !tape.is_native(x) {
        let mask = upload(dropout_mask(x.elem_count(), seed, probability), x.shape(), x.device())?;
        let out = (x.detach() * &mask)?;
        return composed(tape, x, out, move |grad| grad * mask);
    }
    let mut out = read(x)?.to_vec();
    drop_out(&mut out, seed, probability);
    let out = slices::tensor(out, x.shape())?;
    if tape.wants(x) {
        let x = x.clone();
        tape.record(&out, move |mut grad, grads| {
            drop_out(&mut grad, seed, probability);
            grads.add(&x, grad);
            Ok(())
        });
    }
    Ok(out)
}

/// What dropout multiplies `count` values by.
pub(crate) fn dropout_mask(count: usize, seed: u64, probability: f32) -> Vec<f32> {
    let mut mask = vec![1.0; count];
    drop_out(&mut mask, seed, probability);
    mask
}

/// Forward and backward are the same product with the mask of this seed.
fn drop_out(values: &mut [f32], seed: u64, probability: f32) {
    let mut rng = Rng::new(seed);
    let scale = 1.0 / (1.0 - probability);
    // Two draws of 32 bits at a time.
    let limit = (f64::from(probability) * 4_294_967_296.0) as u32;
    for pair in values.chunks_mut(2) {
        let bits = rng.bits();
        for (value, bits) in pair.iter_mut().zip([bits as u32, (bits >> 32) as u32]) {
            *value = if bits < limit { 0.0 } else { *value * scale };
        }
    }
}

/// Mean over all positions of each channel. Shapes: `x: [batch, channels, rows, columns]`; returns `[batch, channels]`.
///
/// # Errors
/// If `x` has other dimensions.
pub fn mean_of_positions(tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
    let (batch, channels, rows, columns) = x.dims4()?;
    let positions = rows * columns;
    if positions == 0 {
        bail!("the mean of no position: {:?}", x.dims());
    }
    if !tape.is_native(x) {
        let out = x.detach().mean((2, 3))?;
        let shape = x.shape().clone();
        return composed(tape, x, out, move |grad| {
            let share = (grad / positions as f64)?.reshape((batch, channels, 1, 1))?;
            share.broadcast_as(shape)?.contiguous()
        });
    }
    let values = read(x)?;
    let mean = |plane: &[f32]| super::simd::sum(plane) / positions as f32;
    let out: Vec<f32> = values.chunks_exact(positions).map(mean).collect();
    let out = slices::tensor(out, (batch, channels))?;
    if tape.wants(x) {
        let x = x.clone();
        tape.record(&out, move |grad, grads| {
            let share = |g: f32| std::iter::repeat_n(g / positions as f32, positions);
            grads.add(&x, grad.into_iter().flat_map(share).collect());
            Ok(())
        });
    }
    Ok(out)
}
