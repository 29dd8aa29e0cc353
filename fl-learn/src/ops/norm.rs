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
    if tape.wants_any(&[x, w, b]) {
        let (x, w, b, wanted) = (x.clone(), w.clone(), b.clone(), tape.wants(x));
        tape.record(&out, move |mut grad, grads| {
            let (values, scale) = (read(&x)?, read(&w)?);
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
                        for (g, w) in grad.iter_mut().zip(scale.iter()) {
                            *g *= w;
                        }
                        let (mean, along) = (sum(grad) / dim as f32, dot(grad, &normal) / dim as f32);
                        for (g, n) in grad.iter_mut().zip(&normal) {
                            *g = (*g - mean - n * along) * inverse;
                        }
                    }
                },
            );
            grads.add(&w, dw);
            grads.add(&b, db);
            grads.add_some(&x, Some(grad).filter(|_| wanted));
            Ok(())
        });
    }
    Ok(out)
}

/// Both norms on other devices; the one with a shift is layer norm.
fn composed(tape: &mut Tape, x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor> {
    let normal = Normal::new(&x.detach(), eps, b.is_some())?;
    let mut out = normal.values.broadcast_mul(&w.detach())?;
    if let Some(b) = b {
        out = out.broadcast_add(&b.detach())?;
    }
    let b = b.filter(|b| tape.wants(b)).map(Tensor::id);
    let wanted = [tape.wants(x), tape.wants(w)];
    if b.is_some() || wanted.contains(&true) {
        let (scale, x, w) = (w.detach(), x.id(), w.id());
        tape.record_composed(&out, move |grad, grads| {
            if let Some(b) = b {
                grads.add(b, grad.sum(0)?)?;
            }
            if wanted[1] {
                grads.add(w, (&grad * &normal.values)?.sum(0)?)?;
            }
            match wanted[0] {
                true => grads.add(x, normal.backward(&grad.broadcast_mul(&scale)?)?),
                false => Ok(()),
            }
        });
    }
    Ok(out)
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
    if tape.wants_any(&[x, w]) {
        let (x, w, wanted) = (x.clone(), w.clone(), tape.wants(x));
        tape.record(&out, move |mut grad, grads| {
            let (values, scale) = (read(&x)?, read(&w)?);
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
                        for (g, w) in grad.iter_mut().zip(scale.iter()) {
                            *g *= w;
                        }
                        let along = dot(grad, &normal) / dim as f32;
                        for (g, n) in grad.iter_mut().zip(&normal) {
                            *g = (*g - n * along) * inverse;
                        }
                    }
                },
            );
            grads.add(&w, dw);
            grads.add_some(&x, Some(grad).filter(|_| wanted));
            Ok(())
        });
    }
    Ok(out)
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
