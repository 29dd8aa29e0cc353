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
            .ints(&[self.dim, self.positions, self.groups])
            .ints(&[self.centered, self.with_relu].map(usize::from))
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
                .ints(&[self.dim, self.positions, self.groups, self.centered.into()])
                .fills(x.shape())
                .launch_one()
        };
        let dx = wanted[0].then(dx).transpose()?;
        if !wanted[1] && !wanted[2] {
            return Ok([dx, None, None]);
        }
        let sums = match self.positions {
            1 => Sums::of_columns(grad),
            positions => Sums::of_channels(grad, w.elem_count(), positions, self.groups),
        };
        let [db, dw] = sums.with_products([grad, x, stats])?;
        Ok([dx, Some(dw), Some(db)])
    }
}

/// Sums over all rows of each column, or over all positions of each channel of images.
#[derive(Debug)]
pub(in super::super) struct Sums {
    name: &'static str,
    grid: [usize; 2],
    block: usize,
    extents: Vec<usize>,
    /// Of the sums.
    width: usize,
}

impl Sums {
    /// By column. Shapes: `grad, x: [rows, dim]`, `stats: [rows, 2]`; sums: `[dim]`.
    pub(in super::super) fn of_columns(grad: &Tensor) -> Self {
        let dim = grad.dims().last().copied().unwrap_or(1);
        let rows = grad.elem_count() / dim;
        // As many blocks as keep a large GPU busy, each with at least 64 rows.
        let parts = (1024 / dim.div_ceil(32)).clamp(1, rows.div_ceil(64));
        Self {
            name: "column_sums",
            grid: [dim.div_ceil(32), parts],
            block: 256,
            extents: vec![rows, dim],
            width: dim,
        }
    }

    /// By channel. Shapes: `grad, x: [batch, channels, positions]`, `stats: [batch * groups, 2]`, or `[channels, 2]` if `groups` is 0;
    /// sums: `[channels]`.
    pub(in super::super) fn of_channels(grad: &Tensor, channels: usize, positions: usize, groups: usize) -> Self {
        let count = grad.elem_count() / channels;
        let block = Kernel::threads(count);
        // As many blocks as keep a large GPU busy, each with at least 8 values a thread.
        let parts = (1024 / channels).clamp(1, count.div_ceil(8 * block));
        Self {
            name: "channel_sums",
            grid: [channels, parts],
            block,
            extents: vec![count / positions, positions, groups],
            width: channels,
        }
    }

    fn of<'a>(&self, grad: &'a Tensor, x: Option<&'a Tensor>, stats: Option<&'a Tensor>) -> Kernel<'a> {
        let kernel = Kernel::of_grid(self.name, self.grid, self.block).reads([grad]);
        let kernel = kernel.reads_some(x).reads_some(stats).ints(&self.extents);
        kernel.fills((self.grid[1], self.width))
    }

    /// The sums of `grad`.
    pub(in super::super) fn alone(&self, grad: &Tensor) -> Result<Tensor> {
        self.of(grad, None, None).fills_none().launch_one()?.sum(0)
    }

    /// The sums of `grad`, and those of its products with the values of `x` that `stats` normalize.
    pub(in super::super) fn with_products(&self, [grad, x, stats]: [&Tensor; 3]) -> Result<[Tensor; 2]> {
        let kernel = self.of(grad, Some(x), Some(stats));
        let [sums, products] = kernel.fills((self.grid[1], self.width)).launch()?;
        Ok([sums.sum(0)?, products.sum(0)?])
    }
}
