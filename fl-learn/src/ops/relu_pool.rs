//! Max-pooling with bias and relu in the same pass, and the way back.
//!
//! Since adding a constant and relu keep the order of values, the largest value is found first and bias and relu are
//! applied to it alone: the result is that of relu before the pool.

/// Mark of a cell that relu set to zero: no gradient flows through it.
pub(super) const OFF: u8 = 255;

/// One plane: `out = relu(max over each window of z + bias)`. `pick` receives which value of the window was the
/// largest (the first of equals), row-major, or [`OFF`]. Shapes: `z: [.. * width]`, `out, pick: [pooled rows * columns]`.
pub(super) fn relu_pool(
    z: &[f32],
    width: usize,
    bias: f32,
    size: [usize; 2],
    cols: usize,
    out: &mut [f32],
    pick: &mut [u8],
) {
    for (y, (out, pick)) in out.chunks_exact_mut(cols).zip(pick.chunks_exact_mut(cols)).enumerate() {
        let rows = &z[y * size[0] * width..];
        match size {
            [1, 1] => one(&rows[..cols], bias, out, pick),
            [2, 2] => two_by_two(&rows[..2 * cols], &rows[width..width + 2 * cols], bias, out, pick),
            _ => any(rows, width, bias, size, out, pick),
        }
    }
}

fn one(z: &[f32], bias: f32, out: &mut [f32], pick: &mut [u8]) {
    for ((z, out), pick) in z.iter().zip(out).zip(pick) {
        let value = z + bias;
        *pick = if value > 0.0 { 0 } else { OFF };
        *out = if value > 0.0 { value } else { 0.0 };
    }
}

fn two_by_two(top: &[f32], low: &[f32], bias: f32, out: &mut [f32], pick: &mut [u8]) {
    let pairs = top.as_chunks::<2>().0.iter().zip(low.as_chunks::<2>().0);
    for (([a, b], [c, d]), (out, pick)) in pairs.zip(out.iter_mut().zip(pick)) {
        let (upper, upper_at) = if b > a { (*b, 1) } else { (*a, 0) };
        let (lower, lower_at) = if d > c { (*d, 3) } else { (*c, 2) };
        let (best, at) = if lower > upper {
            (lower, lower_at)
        } else {
            (upper, upper_at)
        };
        let value = best + bias;
        *pick = if value > 0.0 { at } else { OFF };
        *out = if value > 0.0 { value } else { 0.0 };
    }
}

fn any(rows: &[f32], width: usize, bias: f32, size: [usize; 2], out: &mut [f32], pick: &mut [u8]) {
    for (x, (out, pick)) in out.iter_mut().zip(pick).enumerate() {
        let mut best = rows[x * size[1]];
        let mut at = 0;
        for dy in 0..size[0] {
            for dx in 0..size[1] {
                let value = rows[dy * width + x * size[1] + dx];
                if value > best {
                    (best, at) = (value, (dy * size[1] + dx) as u8);
                }
            }
        }
        let value = best + bias;
        *pick = if value > 0.0 { at } else { OFF };
        *out = if value > 0.0 { value } else { 0.0 };
    }
}

/// The way back for one plane: overwrites `dz` with the gradient of the values before the pool, and returns the
/// gradient of the bias. Shapes: as [`relu_pool`], `grad` and `dz` in place of `out` and `z`.
pub(super) fn unpool(grad: &[f32], pick: &[u8], width: usize, size: [usize; 2], cols: usize, dz: &mut [f32]) -> f32 {
    if size == [2, 2] {
        return unpool_two_by_two(grad, pick, width, cols, dz);
    }
    dz.fill(0.0);
    let mut bias = 0.0;
    for (y, (grad, pick)) in grad.chunks_exact(cols).zip(pick.chunks_exact(cols)).enumerate() {
        let rows = &mut dz[y * size[0] * width..];
        for (x, (&grad, &pick)) in grad.iter().zip(pick).enumerate() {
            if pick != OFF {
                let pick = usize::from(pick);
                rows[pick / size[1] * width + x * size[1] + pick % size[1]] = grad;
                bias += grad;
            }
        }
    }
    bias
}

/// As [`unpool`] for windows of 2x2, writing each value once.
fn unpool_two_by_two(grad: &[f32], pick: &[u8], width: usize, cols: usize, dz: &mut [f32]) -> f32 {
    let used = grad.len() / cols * 2 * width;
    let rows = grad.chunks_exact(cols).zip(pick.chunks_exact(cols));
    for ((grad, pick), dz) in rows.zip(dz[..used].chunks_exact_mut(2 * width)) {
        let (top, low) = dz.split_at_mut(width);
        for (row, first) in [(&mut *top, 0), (&mut *low, 2)] {
            for ([left, right], (grad, &pick)) in row.as_chunks_mut::<2>().0.iter_mut().zip(grad.iter().zip(pick)) {
                // All ones or all zeros, so that nothing branches on the data.
                let mask = |at: u8| u32::from(pick == at).wrapping_neg();
                *left = f32::from_bits(grad.to_bits() & mask(first));
                *right = f32::from_bits(grad.to_bits() & mask(first + 1));
            }
            row[2 * cols..].fill(0.0);
        }
    }
    dz[used..].fill(0.0);
    kept(grad, pick)
}

fn kept(grad: &[f32], pick: &[u8]) -> f32 {
    let one = |grad: &f32, pick: &u8| f32::from_bits(grad.to_bits() & u32::from(*pick != OFF).wrapping_neg());
    let ((grads, grad_rest), (picks, pick_rest)) = (grad.as_chunks::<8>(), pick.as_chunks::<8>());
    let mut lanes = [0.0f32; 8];
    for (grad, pick) in grads.iter().zip(picks) {
        lanes
            .iter_mut()
            .zip(grad.iter().zip(pick))
            .for_each(|(lane, (grad, pick))| *lane += one(grad, pick));
    }
    lanes.iter().sum::<f32>()
        + grad_rest
            .iter()
            .zip(pick_rest)
            .map(|(grad, pick)| one(grad, pick))
            .sum::<f32>()
}
