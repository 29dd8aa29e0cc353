//! The kernels of norms, and sums by column and by channel.

use candle_core::{Result, Tensor};

use super::launch::Kernel;

/// A norm by the statistics of rows: a row is a token, or some channels of an image.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RowNorm {
    /// Values of a row.
    pub(in super::super) dim: usize,
    /// Values that share a scale and a shift: one, or the positions of a channel.
    pub(in super::super) positions: usize,
    /// Rows of an image; 1 if each row is scaled alike.
    pub(in super::super) groups: usize,
    pub(in super::super) eps: f32,
    /// Whether the mean is taken off.
    pub(in super::super) centered: bool,
    /// Whether relu follows.
    pub(in super::super) with_relu: bool,
}

impl RowNorm {
    /// Of the `dim` values of each token, without relu.
    pub(in super::super) fn of_tokens(dim: usize, eps: f32, centered: bool) -> Self {
        Self {
            dim,
            positions: 1,
            groups: 1,
            eps,
            centered,
            with_relu: false,
        }
    }

    /// The normalized, scaled and shifted rows, and what [`RowNorm::backward`] needs. Shapes: `w, b: [groups * dim / positions]`.
    pub(in super::super) fn forward(self, x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<[Tensor; 2]> {
        let rows = x.elem_count() / self.dim;
        Kernel::of_rows("row_norm", rows, self.dim)
            .reads([x, w])
            .reads_some(b)
            .ints([self.dim, self.positions, self.groups])
            .ints([self.centered, self.with_relu].map(usize::from))
            .float(self.eps)
            .fills(x.shape())
            .fills((rows, 2))
            .launch()
    }

    /// Gradients of input, scale and shift, as far as they are wanted.
    pub(in super::super) fn backward(
        self,
        [x, w, stats, grad]: [&Tensor; 4],
        wanted: [bool; 3],
    ) -> Result<[Option<Tensor>; 3]> {
        let dx = || {
            Kernel::of_rows("row_norm_dx", x.elem_count() / self.dim, self.dim)
                .reads([x, w, stats, grad])
                .ints([self.dim, self.positions, self.groups, self.centered.into()])
                .fills(x.shape())
                .launch_one()
        };
        let dx = wanted[0].then(dx).transpose()?;
        if !wanted[1] && !wanted[2] {
            return Ok([dx, None, None]);
        }
        let (db, dw) = match self.positions {
            1 => column_sums(grad, Some([x, stats]))?,
            positions => channel_sums(grad, Some([x, stats]), w.elem_count(), positions, self.groups)?,
        };
        Ok([dx, dw, Some(db)])
    }
}

/// Sums of each column of `grad`, and those of its products with the values of `x` that `stats` normalize. Shapes: `grad, x: [rows,
/// dim]`, `stats: [rows, 2]`; returns `[dim]`.
pub(in super::super) fn column_sums(grad: &Tensor, x: Option<[&Tensor; 2]>) -> Result<(Tensor, Option<Tensor>)> {
    let dim = grad.dims().last().copied().unwrap_or(1);
    let rows = grad.elem_count() / dim;
    // As many blocks as keep a large GPU busy, each with at least 64 rows.
    let parts = (1024 / dim.div_ceil(32)).clamp(1, rows.div_ceil(64));
    let kernel = Kernel::of_grid("column_sums", [dim.div_ceil(32), parts], 256);
    sums(kernel, grad, x, [rows, dim], (parts, dim))
}

/// As [`column_sums`], of the positions of each channel of images. Shapes: `grad, x: [batch, channels, positions]`, `stats: [batch *
/// groups, 2]`, or `[channels, 2]` if `groups` is 0; returns `[channels]`.
pub(in super::super) fn channel_sums(
    grad: &Tensor,
    x: Option<[&Tensor; 2]>,
    channels: usize,
    positions: usize,
    groups: usize,
) -> Result<(Tensor, Option<Tensor>)> {
    let count = grad.elem_count() / channels;
    let block = Kernel::threads(count);
    // As many blocks as keep a large GPU busy, each with at least 8 values a thread.
    let parts = (1024 / channels).clamp(1, count.div_ceil(8 * block));
    let kernel = Kernel::of_grid("channel_sums", [channels, parts], block);
    let extents = [count / positions, positions, groups];
    sums(kernel, grad, x, extents, (parts, channels))
}

fn sums<'a, const N: usize>(
    kernel: Kernel<'a>,
    grad: &'a Tensor,
    x: Option<[&'a Tensor; 2]>,
    extents: [usize; N],
    shape: (usize, usize),
) -> Result<(Tensor, Option<Tensor>)> {
    let (values, stats) = x.map(|[x, stats]| (x, stats)).unzip();
    let kernel = kernel.reads([grad]).reads_some(values).reads_some(stats);
    let kernel = kernel.ints(extents).fills(shape);
    let whole = |parts: Tensor| match shape.0 {
        1 => parts.flatten_all(),
        _ => parts.sum(0),
    };
    if x.is_none() {
        return Ok((whole(kernel.fills_none().launch_one()?)?, None));
    }
    let [sums, products] = kernel.fills(shape).launch()?;
    Ok((whole(sums)?, Some(whole(products)?)))
}
