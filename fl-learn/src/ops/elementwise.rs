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
        let y = relu.then(|| out.clone());
        return Ok(tape.composition([a, b], out, move |grad, _| {
            let grad = tensors::off_where_zero(grad, y.as_ref())?;
            Ok([Some(grad.clone()), Some(grad)])
        }));
    }
    let (x, y) = (read(a)?, read(b)?);
    let sum = x.iter().zip(y.iter()).map(|(x, y)| x + y);
    let out: Vec<f32> = match relu {
        true => sum.map(positive).collect(),
        false => sum.collect(),
    };
    let out = slices::tensor(out, a.shape())?;
    let y = relu.then(|| out.clone());
    Ok(tape.looped([a, b], out, move |mut grad, _, wanted| {
        if let Some(y) = y {
            off_where_zero(&mut grad, &read(&y)?);
        }
        Ok(match wanted {
            [true, true] => [Some(grad.clone()), Some(grad)],
            [true, false] => [Some(grad), None],
            [false, _] => [None, Some(grad)],
        })
    }))
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
        return Ok(tape.composition([a, b], out, move |grad, wanted| {
            let d_b = wanted[1].then(|| &grad * f64::from(scale)).transpose()?;
            Ok([Some(grad), d_b])
        }));
    }
    let out = read(a)?
        .iter()
        .zip(read(b)?.iter())
        .map(|(x, y)| x + scale * y)
        .collect();
    let out = slices::tensor(out, a.shape())?;
    Ok(tape.looped([a, b], out, move |grad, _, wanted| {
        let d_b = wanted[1].then(|| grad.iter().map(|g| g * scale).collect());
        Ok([Some(grad), d_b])
    }))
}

/// Relu: 0 below 0.
///
/// # Errors
/// If the tensor is not contiguous `f32`.
pub fn relu(tape: &mut Tape, x: &Tensor) -> Result<Tensor> {
    if !tape.is_native(x) {
        let out = x.detach().relu()?;
        let y = out.clone();
        return Ok(tape.composition([x], out, move |grad, _| {
            Ok([Some(tensors::off_where_zero(grad, Some(&y))?)])
        }));
    }
    let out: Vec<f32> = read(x)?.iter().copied().map(positive).collect();
    let out = slices::tensor(out, x.shape())?;
    let y = out.clone();
    Ok(tape.looped([x], out, move |mut grad, _, _| {
        off_where_zero(&mut grad, &read(&y)?);
        Ok([Some(grad)])
    }))
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
        return Ok(tape.composition([x], values.gelu()?, move |grad, _| {
            let (scale, cube) = (f64::from(GELU_SCALE), f64::from(GELU_CUBE));
            let squares = values.sqr()?;
            let t = (squares.affine(scale * cube, scale)? * &values)?.tanh()?;
            let turning = (t.sqr()?.affine(-0.5, 0.5)? * &values)?;
            let steep = (turning * squares.affine(3.0 * scale * cube, scale)?)?;
            Ok([Some((grad * (t.affine(0.5, 0.5)? + steep)?)?)])
        }));
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
        let out = values.silu()?;
        return Ok(tape.composition([x], out, move |grad, _| {
            Ok([Some((grad * composed_silu_slope(&values)?)?)])
        }));
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
        return Ok(tape.composition([gate, up], out, move |grad, _| {
            let d_gate = ((&grad * factors)? * composed_silu_slope(&values)?)?;
            Ok([Some(d_gate), Some((grad * opening)?)])
        }));
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
    Ok(tape.looped([gate, up], out, move |mut grad, [gate, up], _| {
        let mut d_gate = vec![0.0; gate.len()];
        vectorized(
            #[inline(always)]
            || {
                for (((grad, d), g), u) in grad.iter_mut().zip(&mut d_gate).zip(gate).zip(up) {
                    *d = *grad * u * silu_slope(*g);
                    *grad *= g * sigmoid(*g);
                }
            },
        );
        Ok([Some(d_gate), Some(grad)])
    }))
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
    Ok(tape.looped([x], out, move |mut grad, [values], _| {
        vectorized(
            #[inline(always)]
            || {
                for (grad, x) in grad.iter_mut().zip(values) {
                    *grad *= slope(*x);
                }
            },
        );
        Ok([Some(grad)])
    }))
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
        return Ok(tape.composition([x], out, move |grad, _| Ok([Some((grad * mask)?)])));
    }
    let mut out = read(x)?.to_vec();
    drop_out(&mut out, seed, probability);
    let out = slices::tensor(out, x.shape())?;
    Ok(tape.looped([x], out, move |mut grad, _, _| {
        drop_out(&mut grad, seed, probability);
        Ok([Some(grad)])
    }))
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
        return Ok(tape.composition([x], out, move |grad, _| {
            let share = (grad / positions as f64)?.reshape((batch, channels, 1, 1))?;
            Ok([Some(share.broadcast_as(shape)?.contiguous()?)])
        }));
    }
    let values = read(x)?;
    let mean = |plane: &[f32]| super::simd::sum(plane) / positions as f32;
    let out: Vec<f32> = values.chunks_exact(positions).map(mean).collect();
    let out = slices::tensor(out, (batch, channels))?;
    Ok(tape.looped([x], out, move |grad, _, _| {
        let share = |g: f32| std::iter::repeat_n(g / positions as f32, positions);
        Ok([Some(grad.into_iter().flat_map(share).collect())])
    }))
}
