//! Pieces of what a GPU computes by candle's operations, without its graph. Nothing here is tracked.

use candle_core::{DType, Result, Tensor};

/// `x` in `f32`.
pub(super) fn as_f32(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(DType::F32)
}

/// Rows and columns apart: each value of `x` at `stride` times its place, with zeros between. Shapes:
/// `x: [batch, channels, rows, columns]`; returns `[batch, channels, stride * rows, stride * columns]`.
pub(super) fn spread(x: &Tensor, stride: usize) -> Result<Tensor> {
    if stride == 1 {
        return Ok(x.clone());
    }
    let (batch, channels, rows, columns) = x.dims4()?;
    let apart = x.reshape((batch, channels, rows, 1, columns, 1))?;
    let apart = apart
        .pad_with_zeros(5, 0, stride - 1)?
        .pad_with_zeros(3, 0, stride - 1)?;
    apart.reshape((batch, channels, rows * stride, columns * stride))
}

/// `x` with `before` zeros before it along dimension `dim`, and as many after it as make `len` values; what does not fit is cut off. A
/// negative `before` cuts off, too.
pub(super) fn fitted(x: &Tensor, dim: usize, before: isize, len: usize) -> Result<Tensor> {
    let cut = before.min(0).unsigned_abs();
    if before >= len as isize || cut >= x.dim(dim)? {
        let mut dims = x.dims().to_vec();
        dims[dim] = len;
        return Tensor::zeros(dims, x.dtype(), x.device());
    }
    let before = before.max(0) as usize;
    let kept = (x.dim(dim)? - cut).min(len - before);
    let x = if cut == 0 && kept == x.dim(dim)? {
        x.clone()
    } else {
        x.narrow(dim, cut, kept)?
    };
    match (before, len - before - kept) {
        (0, 0) => Ok(x),
        (before, after) => x.pad_with_zeros(dim, before, after),
    }
}
