//! Backward pass of a convolution with bias, relu and max-pool.

use super::gemm::{View, gemm};
use super::geometry::Geometry;
use super::{patches, pool, scratch};

/// Gradients of input, kernel and bias, shaped as these; the input's only if `input_grad`.
/// Shapes: `grad, picks: [batch, filters, pooled rows, pooled columns]`.
#[allow(clippy::type_complexity)]
pub(super) fn gradients(
    x: &[f32],
    w: &[f32],
    grad: &[f32],
    picks: &[u8],
    input_grad: bool,
    g: &Geometry,
) -> (Option<Vec<f32>>, Vec<f32>, Vec<f32>) {
    let (patch, positions, cells) = (g.patch(), g.positions(), g.cells());
    let mut dx = input_grad.then(|| vec![0.0; x.len()]);
    let (mut dw_t, mut db) = (vec![0.0; w.len()], vec![0.0; g.filters]);
    for first in (0..g.batch).step_by(g.block()) {
        let examples = g.block().min(g.batch - first);
        let columns = examples * positions;
        scratch::with((g.filters + patch) * columns, |buffer| {
            let (dz, matrix) = buffer.split_at_mut(g.filters * columns);
            for example in 0..examples {
                for (filter, db) in db.iter_mut().enumerate() {
                    let at = ((first + example) * g.filters + filter) * cells;
                    let dz = &mut dz[filter * columns + example * positions..][..positions];
                    let (grad, pick) = (&grad[at..at + cells], &picks[at..at + cells]);
                    *db += pool::unpool(grad, pick, g.output[1], g.window.pool, g.pooled[1], dz);
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
    (dx, transposed(&dw_t, patch, g.filters), db)
}

/// Shapes: `values: [rows * columns]`; returns `[columns * rows]`.
pub(super) fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    for (row, values) in values.chunks_exact(columns).enumerate() {
        values
            .iter()
            .enumerate()
            .for_each(|(column, value)| out[column * rows + row] = *value);
    }
    out
}
