//! Plain convolution, as in residual networks, where a norm follows.

use candle_core::{Result, Tensor};

use super::conv_grad::transposed;
use super::gemm::{View, gemm};
use super::geometry::{Geometry, Window};
use super::graph::function_of_two;
use super::slices::{self, read};
use super::tape::Tape;
use super::{patches, scratch};

/// Cross-correlation of `x` with the kernels `w`, with `pad` zeros on every side. Shapes:
/// `x: [batch, channels, rows, columns]`, `w: [filters, channels, kernel rows, kernel columns]`; returns
/// `[batch, filters, rows, columns]`.
///
/// # Errors
/// If the shapes do not agree.
pub fn conv2d(tape: &mut Tape, x: &Tensor, w: &Tensor, stride: usize, pad: usize) -> Result<Tensor> {
    let window = Window {
        stride,
        pad: [pad, pad],
        pool: [1, 1],
    };
    let g = Geometry::new(x.dims(), w.dims(), &w.dims()[..1], window)?;
    if !tape.is_native(x) {
        return tape.product(x, w, |x, w| composed(x, w, stride, pad));
    }
    let out = forward(&read(x)?, &read(w)?, &g);
    let out = slices::tensor(out, (g.batch, g.filters, g.output[0], g.output[1]))?;
    if tape.wants_any(&[x, w]) {
        let (x, w, wanted) = (x.clone(), w.clone(), [tape.wants(x), tape.wants(w)]);
        tape.record(&out, move |grad, grads| {
            if wanted[1] {
                let dw = weight_grad(&read(&x)?, &grad, &g);
                grads.add(&w, dw);
            }
            if wanted[0] {
                let dx = input_grad(&read(&w)?, &grad, &g);
                grads.add(&x, dx);
            }
            Ok(())
        });
    }
    Ok(out)
}

/// On other devices: the convolution by candle's kernel, and its way back by two more. (candle's own way to the input computes
/// each value in a thread of its own, which is ten times slower.)
pub(super) fn composed(x: &Tensor, w: &Tensor, stride: usize, pad: usize) -> Result<Tensor> {
    let (detached_x, detached_w) = (x.detach(), w.detach());
    let out = detached_x.conv2d(&detached_w, pad, stride, 1, 1)?;
    function_of_two(x, w, out, move |grad, [x_wanted, w_wanted]| {
        let (x, w) = (&detached_x, &detached_w);
        let dx = x_wanted.then(|| composed_input_grad(x.dims4()?, w, grad, stride, pad));
        let dw = w_wanted.then(|| composed_weight_grad(x, w.dims4()?, grad, stride, pad));
        Ok([dx.transpose()?, dw.transpose()?])
    })
}

/// The gradient, with zeros between the positions of the kernel, convolved with the kernel turned around.
fn composed_input_grad(
    (_, _, rows, columns): (usize, usize, usize, usize),
    w: &Tensor,
    grad: &Tensor,
    stride: usize,
    pad: usize,
) -> Result<Tensor> {
    let (batch, filters, out_rows, out_columns) = grad.dims4()?;
    let (_, _, kernel_rows, kernel_columns) = w.dims4()?;
    let grad = grad.contiguous()?;
    let apart = match stride {
        1 => grad,
        _ => {
            let apart = grad.reshape((batch, filters, out_rows, 1, out_columns, 1))?;
            let apart = apart
                .pad_with_zeros(5, 0, stride - 1)?
                .pad_with_zeros(3, 0, stride - 1)?;
            apart.reshape((batch, filters, out_rows * stride, out_columns * stride))?
        }
    };
    // What the padded input has before and after what the result shall have, and after the last position of a kernel.
    let fit = |grad: Tensor, dim: usize, kernel: usize, len: usize| -> Result<Tensor> {
        let before = (kernel - 1) as isize - pad as isize;
        let after = len as isize + kernel as isize - 1 - grad.dim(dim)? as isize - before;
        let grad = match (before.min(0).unsigned_abs(), after.min(0).unsigned_abs()) {
            (0, 0) => grad,
            (before, after) => grad.narrow(dim, before, grad.dim(dim)? - before - after)?,
        };
        match (before.max(0) as usize, after.max(0) as usize) {
            (0, 0) => Ok(grad),
            (before, after) => grad.pad_with_zeros(dim, before, after),
        }
    };
    let apart = fit(fit(apart, 2, kernel_rows, rows)?, 3, kernel_columns, columns)?;
    let turned = w.flip(&[2, 3])?.transpose(0, 1)?.contiguous()?;
    apart.contiguous()?.conv2d(&turned, 0, 1, 1, 1)
}

/// The input convolved with the gradient, examples and channels exchanged, at every `stride` of which there is a value of it.
fn composed_weight_grad(
    x: &Tensor,
    (_, _, rows, columns): (usize, usize, usize, usize),
    grad: &Tensor,
    stride: usize,
    pad: usize,
) -> Result<Tensor> {
    let grad = grad.transpose(0, 1)?.contiguous()?;
    let dw = x.transpose(0, 1)?.conv2d(&grad, pad, 1, stride, 1)?.transpose(0, 1)?;
    dw.narrow(2, 0, rows)?.narrow(3, 0, columns)
}

/// A kernel of one value without padding needs no matrix of patches.
fn is_pointwise(g: &Geometry) -> bool {
    g.kernel == [1, 1] && g.window.stride == 1 && g.window.pad == [0, 0]
}

/// Calls `f` with the patches of an example, `[patch, positions]`.
fn with_patches<T>(x: &[f32], g: &Geometry, f: impl FnOnce(View<'_>) -> T) -> T {
    let (patch, positions) = (g.patch(), g.positions());
    if is_pointwise(g) {
        return f(View::new(x, patch, positions));
    }
    scratch::with(patch * positions, |matrix| {
        patches::gather(x, matrix, positions, 0, g);
        f(View::new(matrix, patch, positions))
    })
}

fn forward(x: &[f32], w: &[f32], g: &Geometry) -> Vec<f32> {
    let len = g.filters * g.positions();
    let mut out = vec![0.0; g.batch * len];
    for (x, out) in x.chunks_exact(g.example()).zip(out.chunks_exact_mut(len)) {
        with_patches(x, g, |matrix| {
            gemm(out, View::new(w, g.filters, g.patch()), matrix, false)
        });
    }
    out
}

fn weight_grad(x: &[f32], grad: &[f32], g: &Geometry) -> Vec<f32> {
    let len = g.filters * g.positions();
    // Summed transposed, so that the long matrix of patches is read in memory order.
    let mut dw_t = vec![0.0; g.filters * g.patch()];
    for (x, grad) in x.chunks_exact(g.example()).zip(grad.chunks_exact(len)) {
        let grad = View::new(grad, g.filters, g.positions());
        with_patches(x, g, |matrix| gemm(&mut dw_t, matrix, grad.t(), true));
    }
    transposed(&dw_t, g.patch(), g.filters)
}

fn input_grad(w: &[f32], grad: &[f32], g: &Geometry) -> Vec<f32> {
    let (len, patch, positions) = (g.filters * g.positions(), g.patch(), g.positions());
    let w = View::new(w, g.filters, patch);
    let mut dx = vec![0.0; g.batch * g.example()];
    for (dx, grad) in dx.chunks_exact_mut(g.example()).zip(grad.chunks_exact(len)) {
        let grad = View::new(grad, g.filters, positions);
        if is_pointwise(g) {
            gemm(dx, w.t(), grad, false);
            continue;
        }
        scratch::with(patch * positions, |matrix| {
            gemm(matrix, w.t(), grad, false);
            patches::scatter(matrix, dx, positions, 0, g);
        });
    }
    dx
}
