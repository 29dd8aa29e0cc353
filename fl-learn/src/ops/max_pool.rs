//! Max-pooling whose windows may overlap, as at the start of a ResNet.

use candle_core::{Result, Tensor, bail};

use super::cuda::Kernel;
use super::tape::Tape;

/// The largest value of each window of `size` x `size` every `stride` positions; `pad` positions around the image count
/// as the smallest number. Shapes: `x: [batch, channels, rows, columns]`.
pub(crate) fn max_pool(tape: &mut Tape, x: &Tensor, size: usize, stride: usize, pad: usize) -> Result<Tensor> {
    let (batch, channels, rows, columns) = x.dims4()?;
    let shortest = rows.min(columns);
    if size == 0 || stride == 0 || 2 * pad > size || shortest == 0 || shortest + 2 * pad < size {
        bail!("pool of {size} every {stride}, padded by {pad}, of {:?}", x.dims());
    }
    let windows = Windows {
        size: [size; 2],
        stride: [stride; 2],
        pad,
    };
    let [out_rows, out_columns] = windows.count(rows, columns);
    let cells = out_rows * out_columns;
    tape.apply(
        [x],
        (batch, channels, out_rows, out_columns),
        |[x], _| {
            let len = x.len();
            let mut out = vec![0.0; batch * channels * cells];
            let mut picks = vec![0u32; batch * channels * cells];
            let planes = x.chunks_exact(rows * columns).zip(out.chunks_exact_mut(cells));
            for ((plane, out), picks) in planes.zip(picks.chunks_exact_mut(cells)) {
                for (at, (out, pick)) in out.iter_mut().zip(picks).enumerate() {
                    let span = |at: usize, len: usize| {
                        let first = at * stride;
                        first.saturating_sub(pad)..(first + size - pad).min(len)
                    };
                    let mut best = f32::NEG_INFINITY;
                    let mut place = None;
                    for row in span(at / out_columns, rows) {
                        for column in span(at % out_columns, columns) {
                            let value = plane[row * columns + column];
                            // NaN wins, so that a loss shows it.
                            if place.is_none() || value > best || value.is_nan() {
                                (best, place) = (value, Some(row * columns + column));
                            }
                        }
                    }
                    (*out, *pick) = (best, place.unwrap_or(0) as u32);
                }
            }
            (out, move |grad, _| {
                let mut dx = vec![0.0; len];
                let planes = dx.chunks_exact_mut(rows * columns).zip(grad.chunks_exact(cells));
                for ((dx, grad), picks) in planes.zip(picks.chunks_exact(cells)) {
                    grad.iter().zip(picks).for_each(|(g, &pick)| dx[pick as usize] += g);
                }
                [Some(dx)]
            })
        },
        |[x], _| {
            let (out, picks) = windows.largest(&x, None, false)?;
            let shape = x.dims().to_vec();
            Ok((out, move |grad: Tensor| {
                Ok([Some(windows.back(&grad, &picks, &shape)?)])
            }))
        },
    )
}

/// The windows of a pool on a GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) size: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) pad: usize,
}

impl Windows {
    /// Rows and columns of windows of an image.
    fn count(self, rows: usize, columns: usize) -> [usize; 2] {
        [0, 1].map(|at| ([rows, columns][at] + 2 * self.pad - self.size[at]) / self.stride[at] + 1)
    }

    /// The largest value of each window, plus the bias of its channel, then relu if `with_relu`; and which it was. Shapes: `x: [batch,
    /// channels, rows, columns]`, `b: [channels]`.
    pub(super) fn largest(self, x: &Tensor, b: Option<&Tensor>, with_relu: bool) -> Result<(Tensor, Tensor)> {
        let (batch, channels, rows, columns) = x.dims4()?;
        let count = self.count(rows, columns);
        let shape = (batch, channels, count[0], count[1]);
        let len = batch * channels * count[0] * count[1];
        let [out, picks] = Kernel::of_each("max_pool", len)
            .reads([x])
            .reads_some(b)
            .ints(&[channels, rows, columns])
            .ints(&count)
            .ints(&self.size)
            .ints(&self.stride)
            .ints(&[self.pad, len, with_relu.into()])
            .fills(shape)
            .fills(shape)
            .launch()?;
        Ok((out, picks))
    }

    pub(super) fn back(self, grad: &Tensor, picks: &Tensor, shape: &[usize]) -> Result<Tensor> {
        let rows = shape[2];
        let columns = shape[3];
        let len = shape.iter().product();
        Kernel::of_each("max_pool_back", len)
            .reads([grad, picks])
            .ints(&[rows, columns])
            .ints(&self.count(rows, columns))
            .ints(&self.size)
            .ints(&self.stride)
            .ints(&[self.pad, len])
            .fills(shape)
            .launch_one()
    }
}
