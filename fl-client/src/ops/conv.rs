//! Convolution, bias, relu and max-pool as one operation.

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};

use super::conv_grad::gradients;
use super::gemm::{View, gemm};
use super::geometry::{Geometry, Window};
use super::slices::values;
use super::tape::Tape;
use super::{patches, pool, scratch};

/// `max_pool(relu(conv(x, w) + b))`. Shapes: `x: [batch, channels, rows, columns]`,
/// `w: [filters, channels, kernel rows, kernel columns]`, `b: [filters]`; returns
/// `[batch, filters, pooled rows, pooled columns]`. A signal is an image of one row.
///
/// # Errors
/// If the shapes do not agree, or the tensors are not `f32` on one device.
pub fn conv_relu_pool(tape: &mut Tape, x: &Tensor, w: &Tensor, b: &Tensor, window: Window) -> Result<Tensor> {
    let geometry = Geometry::new(x.dims(), w.dims(), b.dims(), window)?;
    if x.device().is_cpu() {
        let op = Conv {
            geometry,
            input_grad: tape.leads_to(x),
            picks: OnceLock::new(),
        };
        return tape.apply3(x, w, b, op);
    }
    let [top, left] = window.pad;
    let padded = x.pad_with_zeros(2, top, top)?.pad_with_zeros(3, left, left)?;
    let z = padded
        .conv2d(w, 0, window.stride, 1, 1)?
        .broadcast_add(&b.reshape((1, (), 1, 1))?)?
        .relu()?;
    if window.pool == [1, 1] {
        Ok(z)
    } else {
        z.max_pool2d((window.pool[0], window.pool[1]))
    }
}

struct Conv {
    geometry: Geometry,
    /// Whether a layer before this one is trained.
    input_grad: bool,
    /// The position of each pooled maximum, kept from forward to backward.
    picks: OnceLock<Vec<u8>>,
}

impl CustomOp3 for Conv {
    fn name(&self) -> &'static str {
        "conv-relu-pool"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        w: &CpuStorage,
        w_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let g = &self.geometry;
        let (out, picks) = forward(values(x, x_layout)?, values(w, w_layout)?, values(b, b_layout)?, g);
        if self.picks.set(picks).is_err() {
            bail!("a convolution op is applied once");
        }
        Ok((
            CpuStorage::F32(out),
            (g.batch, g.filters, g.pooled[0], g.pooled[1]).into(),
        ))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        b: &Tensor,
        _out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let Some(picks) = self.picks.get() else {
            bail!("backward before forward")
        };
        let (dx, dw, db) = gradients(x, w, &grad.contiguous()?, picks, self.input_grad, &self.geometry)?;
        let dx = dx.map(|dx| Tensor::from_vec(dx, x.shape(), x.device())).transpose()?;
        let dw = Tensor::from_vec(dw, w.shape(), w.device())?;
        let db = Tensor::from_vec(db, b.shape(), b.device())?;
        Ok((dx, Some(dw), Some(db)))
    }
}

/// Returns the output and the picks, both `[batch, filters, pooled rows, pooled columns]`.
fn forward(x: &[f32], w: &[f32], b: &[f32], g: &Geometry) -> (Vec<f32>, Vec<u8>) {
    let (patch, positions, cells) = (g.patch(), g.positions(), g.cells());
    let mut out = vec![0.0; g.batch * g.filters * cells];
    let mut picks = vec![0; out.len()];
    let block = g.block();
    let blocks = x
        .chunks(block * g.example())
        .zip(out.chunks_mut(block * g.filters * cells));
    for ((x, out), picks) in blocks.zip(picks.chunks_mut(block * g.filters * cells)) {
        let columns = x.len() / g.example() * positions;
        scratch::with(patch * columns, |matrix| {
            for (i, x) in x.chunks_exact(g.example()).enumerate() {
                patches::gather(x, matrix, columns, i * positions, g);
            }
            scratch::with(g.filters * columns, |z| {
                gemm(
                    z,
                    View::new(w, g.filters, patch),
                    View::new(matrix, patch, columns),
                    false,
                );
                let planes = out.chunks_exact_mut(cells).zip(picks.chunks_exact_mut(cells));
                for (at, (out, pick)) in planes.enumerate() {
                    let (example, filter) = (at / g.filters, at % g.filters);
                    let z = &z[filter * columns + example * positions..][..positions];
                    pool::pool(z, g.output[1], b[filter], g.window.pool, g.pooled[1], out, pick);
                }
            });
        });
    }
    (out, picks)
}
