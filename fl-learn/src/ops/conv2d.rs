//! Plain convolution, as in residual networks, where a norm follows.

use candle_core::{Result, Tensor};

use super::cuda::{Convolution, Product};
use super::gemm::{View, gemm};
use super::geometry::{Geometry, Window};
use super::slices::transposed;
use super::tape::Tape;
use super::tensors::{as_f32, fitted, spread};
use super::{patches, scratch};

/// Cross-correlation of `x` with the kernels `w`, with `pad` zeros on every side. Shapes:
/// `x: [batch, channels, rows, columns]`, `w: [filters, channels, kernel rows, kernel columns]`; returns
/// `[batch, filters, rows, columns]`.
pub(crate) fn conv2d(tape: &mut Tape, x: &Tensor, w: &Tensor, stride: usize, pad: usize) -> Result<Tensor> {
    let pad = [pad, pad];
    let pool = [1, 1];
    let g = Geometry::new(x.dims(), w.dims(), &w.dims()[..1], Window { stride, pad, pool })?;
    if !tape.is_native(x) {
        return on_gpu(tape, x, w, g);
    }
    let shape = (g.batch, g.filters, g.output[0], g.output[1]);
    tape.looped(false, [x, w], shape, |[x, w], wanted| {
        (forward(x, w, &g), move |grad, [x, w]| {
            let dw = wanted[1].then(|| weight_grad(x, &grad, &g));
            [wanted[0].then(|| input_grad(w, &grad, &g)), dw]
        })
    })
}

/// On a GPU: by cuDNN, or where it is missing by candle's kernels.
pub(super) fn on_gpu(tape: &mut Tape, x: &Tensor, w: &Tensor, g: Geometry) -> Result<Tensor> {
    let products = tape.products();
    let by_cudnn = Convolution::new(x, &g, products)?;
    let product = move |which: Product, [a, b]: [&Tensor; 2]| {
        if let Some(own) = &by_cudnn {
            return as_f32(&own.product(which, [a, b])?);
        }
        // Tests are on a CPU, where candle convolves no bfloat16.
        let [a, b] = if cfg!(test) { [&as_f32(a)?, &as_f32(b)?] } else { [a, b] };
        let out = match which {
            Product::Forward => by_candle(a, b, &g),
            Product::InputGrad => input_grad_by_candle(a, b, &g),
            Product::WeightGrad => weight_grad_by_candle(a, b, &g),
        };
        as_f32(&out?)
    };
    tape.on_gpu(false, [x, w], |[x, w], wanted| {
        let x = products.operand(&x)?;
        let w = products.operand(&w)?;
        let out = product(Product::Forward, [&x, &w])?;
        let x = wanted[1].then_some(x);
        let w = wanted[0].then_some(w);
        Ok((out, move |grad: Tensor| {
            let grad = products.operand(&grad)?;
            let dw = x.map(|x| product(Product::WeightGrad, [&x, &grad]));
            let dx = w.map(|w| product(Product::InputGrad, [&w, &grad]));
            Ok([dx.transpose()?, dw.transpose()?])
        }))
    })
}

/// `x` with its zeros as far as candle, which pads rows and columns alike, does not add them; and the zeros that it adds.
fn padded(x: &Tensor, [rows, columns]: [usize; 2]) -> Result<(Tensor, usize)> {
    if rows == columns {
        return Ok((x.clone(), rows));
    }
    let x = x.pad_with_zeros(2, rows, rows)?.pad_with_zeros(3, columns, columns)?;
    Ok((x, 0))
}

fn by_candle(x: &Tensor, w: &Tensor, g: &Geometry) -> Result<Tensor> {
    let (x, pad) = padded(x, g.window.pad)?;
    x.conv2d(w, pad, g.window.stride, 1, 1)
}

/// The input convolved with the gradient, examples and channels exchanged, at each `stride` of which there is a value.
fn weight_grad_by_candle(x: &Tensor, grad: &Tensor, g: &Geometry) -> Result<Tensor> {
    let (x, pad) = padded(x, g.window.pad)?;
    let by_filter = grad.transpose(0, 1)?.contiguous()?;
    let dw = x.transpose(0, 1)?.conv2d(&by_filter, pad, 1, g.window.stride, 1)?;
    let dw = dw
        .transpose(0, 1)?
        .narrow(2, 0, g.kernel[0])?
        .narrow(3, 0, g.kernel[1])?;
    dw.contiguous()
}

/// The gradient, with zeros between the positions of the kernel, convolved with the kernel turned around. (candle's own transposed
/// convolution computes each value in one thread, which takes ten times as long.)
fn input_grad_by_candle(w: &Tensor, grad: &Tensor, g: &Geometry) -> Result<Tensor> {
    let mut apart = spread(&grad.contiguous()?, g.window.stride)?;
    for (at, pad) in g.window.pad.into_iter().enumerate() {
        let more = g.kernel[at] - 1;
        apart = fitted(&apart, 2 + at, more as isize - pad as isize, g.input[at] + more)?;
    }
    let turned = w.flip(&[2, 3])?.transpose(0, 1)?.contiguous()?;
    apart.contiguous()?.conv2d(&turned, 0, 1, 1, 1)
}

/// A kernel of one value without padding needs no matrix of patches.
fn is_pointwise(g: &Geometry) -> bool {
    g.kernel == [1, 1] && g.window.stride == 1 && g.window.pad == [0, 0]
}

/// Calls `f` with the patches of an example, `[patch, positions]`.
fn with_patches<T>(x: &[f32], g: &Geometry, f: impl FnOnce(View<'_>) -> T) -> T {
    let patch = g.patch();
    let positions = g.positions();
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
    let len = g.filters * g.positions();
    let patch = g.patch();
    let positions = g.positions();
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
