//! Convolution, bias, relu and max-pool as one operation.

use candle_core::{Result, Tensor};

use super::conv_grad::gradients;
use super::conv2d;
use super::gemm::{View, gemm};
use super::geometry::{Geometry, Window};
use super::slices::{self, read};
use super::tape::Tape;
use super::tensors::off_where_zero;
use super::{patches, pool, scratch};

/// `max_pool(relu(conv(x, w) + b))`. Shapes: `x: [batch, channels, rows, columns]`,
/// `w: [filters, channels, kernel rows, kernel columns]`, `b: [filters]`; returns
/// `[batch, filters, pooled rows, pooled columns]`. A signal is an image of one row.
///
/// # Errors
/// If the shapes do not agree, or the tensors are not `f32` on one device.
pub fn conv_relu_pool(tape: &mut Tape, x: &Tensor, w: &Tensor, b: &Tensor, window: Window) -> Result<Tensor> {
    let geometry = Geometry::new(x.dims(), w.dims(), b.dims(), window)?;
    if tape.is_native(x) {
        let (out, picks) = forward(&read(x)?, &read(w)?, &read(b)?, &geometry);
        let g = geometry;
        let out = slices::tensor(out, (g.batch, g.filters, g.pooled[0], g.pooled[1]))?;
        return Ok(tape.looped([x, w, b], out, move |grad, [x, w, _], wanted| {
            let (dx, dw, db) = gradients(x, w, &grad, &picks, wanted[0], &g);
            Ok([dx, Some(dw), Some(db)])
        }));
    }
    let z = conv2d::composed(tape, x, w, window.stride, window.pad)?;
    // A pool of sums with the bias has the same largest values, but takes longer.
    let pooled = pool::composed(tape, &z, window.pool)?;
    bias_relu(tape, &pooled, b)
}

/// `relu(x + b)` on other devices. Shapes: `x: [batch, channels, rows, columns]`, `b: [channels]`.
fn bias_relu(tape: &mut Tape, x: &Tensor, b: &Tensor) -> Result<Tensor> {
    let out = x.detach().broadcast_add(&b.detach().reshape((1, (), 1, 1))?)?.relu()?;
    let y = out.clone();
    Ok(tape.composition([x, b], out, move |grad, wanted| {
        let grad = off_where_zero(grad, Some(&y))?;
        let db = wanted[1].then(|| grad.sum((0, 2, 3))).transpose()?;
        Ok([Some(grad), db])
    }))
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
