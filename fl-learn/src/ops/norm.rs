//! Layer norm and RMS norm over the last dimension.

use candle_core::{Result, Tensor, bail};

use super::simd::{dot, sum, sum_of, vectorized};
use super::slices::{self, read};
use super::tape::Tape;
use super::tensors::Normal;

/// `(x - mean) / sqrt(variance + eps) * w + b` of each row (Ba et al. 2016). Shapes: `x: [rows, dim]`, `w, b: [dim]`.
///
/// # Errors
/// If the shapes do not agree.
pub fn layer_norm(tape: &mut Tape, x: &Tensor, w: &Tensor, b: &Tensor, eps: f32) -> Result<Tensor> {
    let (rows, dim) = x.dims2()?;
    if dim == 0 || w.dims() != [dim] || b.dims() != [dim] {
        bail!(
            "scale {:?} and shift {:?} do not suit input {:?}",
            w.dims(),
            b.dims(),
            x.dims()
        );
    }
    if !tape.is_native(x) {
        return composed(tape, x, w, Some(b), eps);
    }
    let (values, scale, shift) = (read(x)?, read(w)?, read(b)?);
    let (mut out, mut stats) = (vec![0.0; values.len()], vec![[0.0f32; 2]; rows]);
    vectorized(
        #[inline(always)]
        || {
            let rows = values.chunks_exact(dim).zip(out.chunks_exact_mut(dim));
            for ((x, out), stat) in rows.zip(&mut stats) {
                let mean = sum(x) / dim as f32;
                let variance = sum_of(x, x, |x, _| (x - mean) * (x - mean)) / dim as f32;
                let inverse = 1.0 / (variance + eps).sqrt();
                for (((out, x), w), b) in out.iter_mut().zip(x).zip(scale.iter()).zip(shift.iter()) {
                    *out = (x - mean) * inverse * w + b;
                }
                *stat = [mean, inverse];
            }
        },
    );
    let out = slices::tensor(out, x.shape())?;
    Ok(tape.looped([x, w, b], out, move |mut grad, [values, scale, _], _| {
        let (mut dw, mut db, mut normal) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        vectorized(
            #[inline(always)]
            || {
                let rows = values.chunks_exact(dim).zip(grad.chunks_exact_mut(dim));
                for ((x, grad), [mean, inverse]) in rows.zip(&stats) {
                    for (n, x) in normal.iter_mut().zip(x) {
                        *n = (x - mean) * inverse;
                    }
                    add_parameters(grad, &normal, &mut dw, Some(&mut db));
                    for (g, w) in grad.iter_mut().zip(scale) {
                        *g *= w;
                    }
                    let (mean, along) = (sum(grad) / dim as f32, dot(grad, &normal) / dim as f32);
                    for (g, n) in grad.iter_mut().zip(&normal) {
                        *g = (*g - mean - n * along) * inverse;
                    }
                }
            },
        );
        Ok([Some(grad), Some(dw), Some(db)])
    }))
}

/// Both norms on other devices; the one with a shift is layer norm.
fn composed(tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor> {
    let normal = Normal::new(&x.detach(), eps, b.is_some())?;
    let mut out = normal.values.broadcast_mul(&w.detach())?;
    if let Some(b) = b {
        out = out.broadcast_add(&b.detach())?;
    }
    let (scale, has_shift) = (w.detach(), b.is_some());
    // Without a shift, `w` is passed twice, and the third gradient is `None`.
    Ok(tape.composition([x, w, b.unwrap_or(w)], out, move |grad, wanted| {
        let db = (has_shift && wanted[2]).then(|| grad.sum(0)).transpose()?;
        let dw = wanted[1].then(|| (&grad * &normal.values)?.sum(0)).transpose()?;
        let dx = wanted[0]
            .then(|| normal.backward(&grad.broadcast_mul(&scale)?))
            .transpose()?;
        Ok([dx, dw, db])
    }))
}

/// `x / sqrt(mean(x^2) + eps) * w` of each row (Zhang and Sennrich 2019). Shapes: `x: [rows, dim]`, `w: [dim]`.
///
/// # Errors
/// If the shapes do not agree.
pub fn rms_norm(tape: &mut Tape, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
    let (rows, dim) = x.dims2()?;
    if dim == 0 || w.dims() != [dim] {
        bail!("scale {:?} does not suit input {:?}", w.dims(), x.dims());
    }
    if !tape.is_native(x) {
        return composed(tape, x, w, None, eps);
    }
    let (values, scale) = (read(x)?, read(w)?);
    let (mut out, mut inverses) = (vec![0.0; values.len()], vec![0.0f32; rows]);
    vectorized(
        #[inline(always)]
        || {
            let rows = values.chunks_exact(dim).zip(out.chunks_exact_mut(dim));
            for ((x, out), inverse) in rows.zip(&mut inverses) {
                *inverse = 1.0 / (dot(x, x) / dim as f32 + eps).sqrt();
                for ((out, x), w) in out.iter_mut().zip(x).zip(scale.iter()) {
                    *out = x * *inverse * w;
                }
            }
        },
    );
    let out = slices::tensor(out, x.shape())?;
    Ok(tape.looped([x, w], out, move |mut grad, [values, scale], _| {
        let (mut dw, mut normal) = (vec![0.0; dim], vec![0.0; dim]);
        vectorized(
            #[inline(always)]
            || {
                let rows = values.chunks_exact(dim).zip(grad.chunks_exact_mut(dim));
                for ((x, grad), inverse) in rows.zip(&inverses) {
                    for (n, x) in normal.iter_mut().zip(x) {
                        *n = x * inverse;
                    }
                    add_parameters(grad, &normal, &mut dw, None);
                    for (g, w) in grad.iter_mut().zip(scale) {
                        *g *= w;
                    }
                    let along = dot(grad, &normal) / dim as f32;
                    for (g, n) in grad.iter_mut().zip(&normal) {
                        *g = (*g - n * along) * inverse;
                    }
                }
            },
        );
        Ok([Some(grad), Some(dw)])
    }))
}

/// Adds a row's share to the gradients of scale and shift.
#[inline(always)]
fn add_parameters(grad: &[f32], normal: &[f32], dw: &mut [f32], db: Option<&mut Vec<f32>>) {
    for ((dw, g), n) in dw.iter_mut().zip(grad).zip(normal) {
        *dw += g * n;
    }
    if let Some(db) = db {
        db.iter_mut().zip(grad).for_each(|(db, g)| *db += g);
    }
}
