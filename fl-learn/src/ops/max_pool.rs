//! Max-pooling whose windows may overlap, as at the start of a ResNet.

use candle_core::{Result, Tensor, bail};

use super::tape::Tape;
use super::tensors::{fitted, spread};

/// The largest value of each window of `size` x `size` every `stride` positions; `pad` positions around the image count
/// as the smallest number. Shapes: `x: [batch, channels, rows, columns]`.
///
/// # Errors
/// If no window fits, the padding is more than half a window, or the device fails.
pub(crate) fn max_pool(tape: &mut Tape, x: &Tensor, size: usize, stride: usize, pad: usize) -> Result<Tensor> {
    let (batch, channels, rows, columns) = x.dims4()?;
    let fits = |len: usize| len + 2 * pad >= size && len > 0;
    if size == 0 || stride == 0 || 2 * pad > size || !fits(rows) || !fits(columns) {
        bail!("pool of {size} every {stride}, padded by {pad}, of {:?}", x.dims());
    }
    let after = |len: usize| (len + 2 * pad - size) / stride + 1;
    let (out_rows, out_columns) = (after(rows), after(columns));
    let cells = out_rows * out_columns;
    tape.apply(
        [x],
        (batch, channels, out_rows, out_columns),
        |[x], _| {
            let len = x.len();
            let (mut out, mut picks) = (
                vec![0.0; batch * channels * cells],
                vec![0u32; batch * channels * cells],
            );
            let planes = x.chunks_exact(rows * columns).zip(out.chunks_exact_mut(cells));
            for ((plane, out), picks) in planes.zip(picks.chunks_exact_mut(cells)) {
                for (at, (out, pick)) in out.iter_mut().zip(picks).enumerate() {
                    let span = |at: usize, len: usize| {
                        let first = at * stride;
                        first.saturating_sub(pad)..(first + size - pad).min(len)
                    };
                    let (mut best, mut place) = (f32::NEG_INFINITY, None);
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
        // The largest of the values at each place of a window, of all windows at once.
        |[x], _| {
            // Zeros would win over negative values.
            let padded = |x: &Tensor| x.pad_with_zeros(2, pad, pad)?.pad_with_zeros(3, pad, pad);
            let least = padded(&Tensor::full(f32::MAX, (1, 1, rows, columns), x.device())?)?
                .affine(1.0, -f64::from(f32::MAX))?;
            let values = padded(&x)?.broadcast_add(&least)?;
            let starts = |count: usize, offset: usize| -> Result<Tensor> {
                let indices: Vec<u32> = (0..count).map(|at| (at * stride + offset) as u32).collect();
                Tensor::new(indices, x.device())
            };
            let mut parts = Vec::with_capacity(size * size);
            for dy in 0..size {
                let band = values.index_select(&starts(out_rows, dy)?, 2)?;
                for dx in 0..size {
                    parts.push(([dy, dx], band.index_select(&starts(out_columns, dx)?, 3)?));
                }
            }
            let mut largest = parts[0].1.clone();
            for (_, part) in &parts[1..] {
                largest = largest.maximum(part)?;
            }
            Ok((largest.clone(), move |mut grad: Tensor| {
                // The first of equal values takes the gradient; what is left is for other windows.
                let mut dx: Option<Tensor> = None;
                for ([row, column], part) in parts {
                    let own = (&grad * part.eq(&largest)?.to_dtype(grad.dtype())?)?;
                    grad = (grad - &own)?;
                    let placed = spread(&own, stride)?;
                    let placed = fitted(&placed, 2, row as isize - pad as isize, rows)?;
                    let placed = fitted(&placed, 3, column as isize - pad as isize, columns)?;
                    dx = Some(match dx {
                        Some(sum) => (sum + placed)?,
                        None => placed,
                    });
                }
                Ok([dx])
            }))
        },
    )
}
