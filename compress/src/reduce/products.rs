//! Products of matrices in `f32`, in an order of sums that depends neither on vectors nor on threads.

use crate::simd::vectorized;

// Rows added to a sum at once: as many operations as loads and stores.
const ROWS: usize = 8;
// Rows and columns of a tile of sums: 12 registers of eight floats, which leaves 4 of the 16 of AVX2 for the operands.
const TILE_ROWS: usize = 6;
const TILE_COLS: usize = 16;

/// `out[j] += sum over r of factors[r] * rows[r][j]`, r ascending. Shapes: `rows: [factors.len(), stride]`, of which the first
/// `out.len()` columns count; the last row may end there.
#[inline(always)]
fn add_rows(factors: &[f32], rows: &[f32], stride: usize, out: &mut [f32]) {
    let width = out.len();
    let blocks = factors.len() / ROWS;
    for block in 0..blocks {
        let [a, b, c, d, e, f, g, h] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|at: usize| &rows[(block * ROWS + at) * stride..][..width]);
        let p: &[f32] = &factors[block * ROWS..][..ROWS];
        for j in 0..width {
            let mut sum = out[j];
            sum += p[0] * a[j];
            sum += p[1] * b[j];
            sum += p[2] * c[j];
            sum += p[3] * d[j];
            sum += p[4] * e[j];
            sum += p[5] * f[j];
            sum += p[6] * g[j];
            sum += p[7] * h[j];
            out[j] = sum;
        }
    }
    for (at, &p) in factors.iter().enumerate().skip(blocks * ROWS) {
        let row = &rows[at * stride..][..width];
        out.iter_mut().zip(row).for_each(|(out, value)| *out += p * value);
    }
}

/// Values of a row of a product: `out[j] = sum over r of p[r] * q[r][start + j]`, r ascending. Shapes: `p: [rank]`, `q: [rank,
/// cols]`; `start + out.len()` is at most `cols`.
#[inline(always)]
fn row_product(p: &[f32], q: &[f32], cols: usize, start: usize, out: &mut [f32]) {
    out.fill(0.0);
    if !p.is_empty() {
        add_rows(p, &q[start..], cols, out);
    }
}

/// The values at `start..start + out.len()` of the product of two factors. Shapes: `p: [rows, rank]`, `q: [rank, cols]`.
pub(crate) fn multiply(p: &[f32], q: &[f32], rank: usize, cols: usize, start: usize, out: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || {
            let mut at = start;
            let mut out = out;
            while !out.is_empty() {
                let row = at / cols;
                let col = at % cols;
                let (part, rest) = out.split_at_mut(out.len().min(cols - col));
                row_product(&p[row * rank..][..rank], q, cols, col, part);
                (out, at) = (rest, at + part.len());
            }
        },
    );
}

/// What the product of two factors leaves of `values`. Shapes: `p: [rows, rank]`, `q: [rank, cols]`.
pub(crate) fn remainder(values: &[f32], p: &[f32], q: &[f32], rank: usize, cols: usize) -> Vec<f32> {
    let mut left = vec![0.0; values.len()];
    vectorized(
        #[inline(always)]
        || {
            let rows = left.chunks_exact_mut(cols).zip(values.chunks_exact(cols));
            for (row, (left, values)) in rows.enumerate() {
                row_product(&p[row * rank..][..rank], q, cols, 0, left);
                left.iter_mut()
                    .zip(values)
                    .for_each(|(left, value)| *left = value - *left);
            }
        },
    );
    left
}

/// `M q^T`: `[rows, rank]`. Shapes: `values: [rows, cols]`, `q: [rank, cols]`.
pub(crate) fn times(values: &[f32], q: &[f32], cols: usize) -> Vec<f32> {
    let rows = values.len() / cols;
    let rank = q.len() / cols;
    let width = rank.next_multiple_of(TILE_COLS);
    let mut transposed = vec![0.0; cols * width];
    for (r, q) in q.chunks_exact(cols).enumerate() {
        transposed
            .iter_mut()
            .skip(r)
            .step_by(width)
            .zip(q)
            .for_each(|(to, &value)| *to = value);
    }
    let mut out = vec![0.0; rows * rank];
    vectorized(
        #[inline(always)]
        || {
            for row in (0..rows).step_by(TILE_ROWS) {
                // The last tile repeats its last row.
                let tile_rows = [0, 1, 2, 3, 4, 5].map(|at: usize| &values[(row + at).min(rows - 1) * cols..][..cols]);
                for col in (0..rank).step_by(TILE_COLS) {
                    let sums = tile(&tile_rows, &transposed[col..], width);
                    for (at, sums) in sums.iter().enumerate().take(rows - row) {
                        let part = &mut out[(row + at) * rank..][..rank][col..];
                        let count = part.len().min(TILE_COLS);
                        part[..count].copy_from_slice(&sums[..count]);
                    }
                }
            }
        },
    );
    out
}

/// Sums of one tile: each row times each of [`TILE_COLS`] columns. Shapes: `columns: [rows[0].len(), width]`, of which the
/// first [`TILE_COLS`] count.
#[inline(always)]
fn tile(rows: &[&[f32]; TILE_ROWS], columns: &[f32], width: usize) -> [[f32; TILE_COLS]; TILE_ROWS] {
    let mut sums = [[0.0f32; TILE_COLS]; TILE_ROWS];
    let len = rows[0].len();
    let rows = rows.map(|row| &row[..len]);
    for j in 0..len {
        let Some(columns) = columns[j * width..].first_chunk::<TILE_COLS>() else {
            break;
        };
        for (sums, row) in sums.iter_mut().zip(&rows) {
            let value = row[j];
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum += value * column;
            }
        }
    }
    sums
}

/// `p^T M`: `[rank, cols]`. Shapes: `values: [rows, cols]`, `p: [rows, rank]`.
pub(crate) fn transposed_times(values: &[f32], p: &[f32], rank: usize, cols: usize) -> Vec<f32> {
    let mut out = vec![0.0; rank * cols];
    let mut factors = [0.0; ROWS];
    vectorized(
        #[inline(always)]
        || {
            for (rows, p) in values.chunks(ROWS * cols).zip(p.chunks(ROWS * rank)) {
                let count = rows.len() / cols;
                for (r, out) in out.chunks_exact_mut(cols).enumerate() {
                    let column = p[r..].iter().step_by(rank);
                    factors.iter_mut().zip(column).for_each(|(factor, &p)| *factor = p);
                    add_rows(&factors[..count], rows, cols, out);
                }
            }
        },
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::laws::heavy;

    /// Sums in the documented order, without blocks.
    fn naive(p: &[f32], q: &[f32], rank: usize, cols: usize) -> Vec<f32> {
        let value = |i: usize, j: usize| (0..rank).fold(0.0, |sum, r| sum + p[i * rank + r] * q[r * cols + j]);
        let rows = p.len() / rank;
        (0..rows).flat_map(|i| (0..cols).map(move |j| value(i, j))).collect()
    }

    fn transpose(values: &[f32], cols: usize) -> Vec<f32> {
        (0..cols)
            .flat_map(|j| values.iter().skip(j).step_by(cols).copied())
            .collect()
    }

    #[test]
    fn products_are_the_bits_of_the_documented_order() {
        for (rows, rank, cols) in [(1, 1, 1), (7, 8, 33), (13, 5, 16), (40, 17, 100), (6, 40, 9)] {
            let (p, q) = (heavy(rows * rank, 1), heavy(rank * cols, 2));
            let expected = naive(&p, &q, rank, cols);
            for start in [0, expected.len() / 3] {
                let mut out = vec![7.0; expected.len() - start];
                multiply(&p, &q, rank, cols, start, &mut out);
                assert_eq!(out, expected[start..]);
            }
            let values = heavy(rows * cols, 3);
            let left: Vec<f32> = values
                .iter()
                .zip(&expected)
                .map(|(value, product)| value - product)
                .collect();
            assert_eq!(remainder(&values, &p, &q, rank, cols), left);
            assert_eq!(
                times(&values, &q, cols),
                naive(&values, &transpose(&q, cols), cols, rank)
            );
            assert_eq!(
                transposed_times(&values, &p, rank, cols),
                naive(&transpose(&p, rank), &values, rows, cols)
            );
        }
    }
}
