//! Shapes of a convolution followed by max-pooling.

use candle_core::{Result, bail};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Steps between two positions of the kernel, at least 1, the same in both directions.
    pub(crate) stride: usize,
    /// Zeros around the input: rows above and below, columns left and right.
    pub(crate) pad: [usize; 2],
    /// Rows and columns of the max-pool that follows, each at least 1; it moves by its own size.
    pub(crate) pool: [usize; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) batch: usize,
    /// Input channels.
    pub(super) channels: usize,
    /// Input rows and columns.
    pub(super) input: [usize; 2],
    /// Output channels.
    pub(super) filters: usize,
    /// Kernel rows and columns.
    pub(super) kernel: [usize; 2],
    /// Rows and columns of the convolution, before pooling.
    pub(super) output: [usize; 2],
    /// Rows and columns after pooling.
    pub(super) pooled: [usize; 2],
    pub(super) window: Window,
}

impl Geometry {
    /// Shapes: `x: [batch, channels, rows, columns]`, `w: [filters, channels, kernel rows, kernel columns]`,
    /// `b: [filters]`.
    pub(super) fn new(x: &[usize], w: &[usize], b: &[usize], window: Window) -> Result<Self> {
        let (&[batch, channels, h, width], &[filters, depth, kh, kw]) = (x, w) else {
            bail!("a convolution takes 4 dimensions, not {x:?} and {w:?}")
        };
        if depth != channels || b != [filters] {
            bail!("kernel {w:?} and bias {b:?} do not suit input {x:?}");
        }
        if window.stride == 0 || window.pool.contains(&0) || kh == 0 || kw == 0 || batch == 0 {
            bail!("kernel {w:?}, stride, pool and batch must be at least 1");
        }
        let padded = [h + 2 * window.pad[0], width + 2 * window.pad[1]];
        if kh > padded[0] || kw > padded[1] {
            bail!("kernel {w:?} is larger than its input {x:?}");
        }
        let output = [
            (padded[0] - kh) / window.stride + 1,
            (padded[1] - kw) / window.stride + 1,
        ];
        let pooled = [output[0] / window.pool[0], output[1] / window.pool[1]];
        if pooled.contains(&0) || window.pool[0] * window.pool[1] > 254 {
            bail!("pool {:?} does not suit a convolution of {output:?}", window.pool);
        }
        Ok(Self {
            batch,
            channels,
            input: [h, width],
            filters,
            kernel: [kh, kw],
            output,
            pooled,
            window,
        })
    }

    /// Rows and columns of the input with its zeros.
    pub(super) fn padded(&self) -> [usize; 2] {
        [
            self.input[0] + 2 * self.window.pad[0],
            self.input[1] + 2 * self.window.pad[1],
        ]
    }

    /// Values of one example of the input.
    pub(super) fn example(&self) -> usize {
        self.channels * self.input[0] * self.input[1]
    }

    /// Values under the kernel at one position.
    pub(super) fn patch(&self) -> usize {
        self.channels * self.kernel[0] * self.kernel[1]
    }

    /// Positions of the kernel in one example.
    pub(super) fn positions(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Positions left after pooling.
    pub(super) fn cells(&self) -> usize {
        self.pooled[0] * self.pooled[1]
    }

    /// Examples worked on together: as many as keep their patches within the second-level cache.
    pub(super) fn block(&self) -> usize {
        const VALUES: usize = 96 * 1024;
        (VALUES / (self.patch() * self.positions()).max(1)).clamp(1, self.batch)
    }
}
