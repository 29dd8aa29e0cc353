//! Pieces of what a GPU computes: compositions of candle's operations, without its graph. Nothing here is tracked.

use candle_core::{D, DType, Result, Tensor};

/// Rows without their mean, divided by their deviation, and what their gradient needs.
pub(super) struct Normal {
    /// `[rows, dim]`.
    pub(super) values: Tensor,
    /// `[rows, 1]`; `None` if the mean stays in the rows.
    pub(super) mean: Option<Tensor>,
    /// `[rows, 1]`.
    pub(super) variance: Tensor,
    deviation: Tensor,
}

impl Normal {
    /// `(x - mean) / sqrt(variance + eps)` of each row; without the mean if `centered` is false. Shapes: `x: [rows, dim]`.
    pub(super) fn new(x: &Tensor, eps: f32, centered: bool) -> Result<Self> {
        let mean = centered.then(|| x.mean_keepdim(D::Minus1)).transpose()?;
        let apart = match &mean {
            Some(mean) => x.broadcast_sub(mean)?,
            None => x.clone(),
        };
        let variance = apart.sqr()?.mean_keepdim(D::Minus1)?;
        let deviation = (&variance + f64::from(eps))?.sqrt()?;
        Ok(Self {
            values: apart.broadcast_div(&deviation)?,
            mean,
            variance,
            deviation,
        })
    }

    /// Gradient of `x` for that of the normalized values.
    pub(super) fn backward(&self, grad: &Tensor) -> Result<Tensor> {
        let along = (grad * &self.values)?.mean_keepdim(D::Minus1)?;
        let across = (grad - self.values.broadcast_mul(&along)?)?;
        let across = match &self.mean {
            Some(_) => across.broadcast_sub(&grad.mean_keepdim(D::Minus1)?)?,
            None => across,
        };
        across.broadcast_div(&self.deviation)
    }

    /// Gradients of `x` and of the scale `w` of each column, as far as they are wanted, for that of the scaled values.
    pub(super) fn scaled_backward<const N: usize>(
        &self,
        grad: &Tensor,
        w: &Tensor,
        wanted: [bool; N],
    ) -> Result<[Option<Tensor>; 2]> {
        let dw = wanted[1].then(|| (grad * &self.values)?.sum(0)).transpose()?;
        let dx = wanted[0].then(|| self.backward(&grad.broadcast_mul(w)?)).transpose()?;
        Ok([dx, dw])
    }
}

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
    let x = match cut == 0 && kept == x.dim(dim)? {
        true => x.clone(),
        false => x.narrow(dim, cut, kept)?,
    };
    match (before, len - before - kept) {
        (0, 0) => Ok(x),
        (before, after) => x.pad_with_zeros(dim, before, after),
    }
}
