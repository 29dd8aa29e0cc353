//! Convolution, bias, relu and max-pool as one operation: a block of examples at a time, so that what lies between stays in the cache.

use candle_core::{Result, Tensor};

use super::cuda::Sums;
use super::gemm::{View, gemm};
use super::geometry::{Geometry, Window};
use super::max_pool::Windows;
use super::slices::transposed;
use super::tape::Tape;
use super::{conv2d, patches, relu_pool, scratch};

/// `max_pool(relu(conv(x, w) + b))`. Shapes: `x: [batch, channels, rows, columns]`,
/// `w: [filters, channels, kernel rows, kernel columns]`, `b: [filters]`; returns
/// `[batch, filters, pooled rows, pooled columns]`. A signal is an image of one row.
pub(crate) fn conv_relu_pool(tape: &mut Tape, x: &Tensor, w: &Tensor, b: &Tensor, window: Window) -> Result<Tensor> {
    let g = Geometry::new(x.dims(), w.dims(), b.dims(), window)?;
    if tape.is_native(x) {
        let shape = (g.batch, g.filters, g.pooled[0], g.pooled[1]);
        return tape.looped(false, [x, w, b], shape, |[x, w, b], wanted| {
            let (out, picks) = forward(x, w, b, &g);
            (out, move |grad, [x, w, _]| backward(x, w, &grad, &picks, wanted[0], &g))
        });
    }
    let z = conv2d::on_gpu(tape, x, w, g)?;
    let windows = Windows {
        size: window.pool,
        stride: window.pool,
        pad: 0,
    };
    // The bias does not change which value is the largest.
    tape.on_gpu(true, [&z, b], |[z, b], wanted| {
        let (out, picks) = windows.largest(&z, Some(&b), true)?;
        let shape = z.dims().to_vec();
        Ok((out, move |grad: Tensor| {
            let dz = wanted[0].then(|| windows.back(&grad, &picks, &shape)).transpose()?;
            Ok([
                dz,
                wanted[1]
                    .then(|| Sums::of_channels(&grad, g.filters, g.cells(), 0).alone(&grad))
                    .transpose()?,
            ])
        }))
    })
}

/// Returns the output and the picks, both `[batch, filters, pooled rows, pooled columns]`.
fn forward(x: &[f32], w: &[f32], b: &[f32], g: &Geometry) -> (Vec<f32>, Vec<u8>) {
    let patch = g.patch();
    let positions = g.positions();
    let cells = g.cells();
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
                    let example = at / g.filters;
                    let filter = at % g.filters;
                    let z = &z[filter * columns + example * positions..][..positions];
                    relu_pool::relu_pool(z, g.output[1], b[filter], g.window.pool, g.pooled[1], out, pick);
                }
            });
        });
    }
    (out, picks)
}

/// Gradients of input, kernel and bias, shaped as these; the input's only if `input_grad`.
/// Shapes: `grad, picks: [batch, filters, pooled rows, pooled columns]`.
fn backward(x: &[f32], w: &[f32], grad: &[f32], picks: &[u8], input_grad: bool, g: &Geometry) -> [Option<Vec<f32>>; 3] {
    let patch = g.patch();
    let positions = g.positions();
    let cells = g.cells();
    let mut dx = input_grad.then(|| vec![0.0; x.len()]);
    let mut dw_t = vec![0.0; w.len()];
    let mut db = vec![0.0; g.filters];
    for first in (0..g.batch).step_by(g.block()) {
        let examples = g.block().min(g.batch - first);
        let columns = examples * positions;
        scratch::with((g.filters + patch) * columns, |buffer| {
            let (dz, matrix) = buffer.split_at_mut(g.filters * columns);
            for example in 0..examples {
                for (filter, db) in db.iter_mut().enumerate() {
                    let at = ((first + example) * g.filters + filter) * cells;
                    let dz = &mut dz[filter * columns + example * positions..][..positions];
                    let grad = &grad[at..at + cells];
                    let pick = &picks[at..at + cells];
                    *db += relu_pool::unpool(grad, pick, g.output[1], g.window.pool, g.pooled[1], dz);
                }
                let x = &x[(first + example) * g.example()..][..g.example()];
                patches::gather(x, matrix, columns, example * positions, g);
            }
            let dz = View::new(dz, g.filters, columns);
            // The kernel's gradient is summed transposed, so that the long matrix of patches is read in memory order.
            gemm(&mut dw_t, View::new(matrix, patch, columns), dz.t(), true);
            if let Some(dx) = &mut dx {
                gemm(matrix, View::new(w, g.filters, patch).t(), dz, false);
                let dx = &mut dx[first * g.example()..][..examples * g.example()];
                for (example, dx) in dx.chunks_exact_mut(g.example()).enumerate() {
                    patches::scatter(matrix, dx, columns, example * positions, g);
                }
            }
        });
    }
    [dx, Some(transposed(&dw_t, patch, g.filters)), Some(db)]
}
