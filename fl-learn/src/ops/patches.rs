//! Between an input and the matrix of what lies under the kernel at each of its positions (im2col and back).
//!
//! The matrix is `[patch, columns]`, row-major: row `(channel, ky, kx)`, one column per kernel position. Several
//! examples are concatenated along the columns, so a row is `columns` long and example `e` starts at column `e *
//! positions`.

use super::geometry::Geometry;
use super::scratch;

/// Writes the patches of one example. Shapes: `x: [channels, rows, columns]`, `matrix: [patch * columns]`; the
/// example's columns start at `first`.
pub(super) fn gather(x: &[f32], matrix: &mut [f32], columns: usize, first: usize, g: &Geometry) {
    if g.window.pad == [0, 0] {
        return copy(x, matrix, columns, first, g);
    }
    let [height, width] = g.padded();
    scratch::with(g.channels * height * width, |padded| {
        padded.fill(0.0);
        each_row(g, |inner, outer| {
            padded[outer..outer + g.input[1]].copy_from_slice(&x[inner..inner + g.input[1]])
        });
        copy(padded, matrix, columns, first, g);
    });
}

/// Adds every value of one example's patches to the input value it came from: the transpose of [`gather`].
/// Shapes: as there; `x` is overwritten.
pub(super) fn scatter(matrix: &[f32], x: &mut [f32], columns: usize, first: usize, g: &Geometry) {
    if g.window.pad == [0, 0] {
        x.fill(0.0);
        return add(matrix, x, columns, first, g);
    }
    let [height, width] = g.padded();
    scratch::with(g.channels * height * width, |padded| {
        padded.fill(0.0);
        add(matrix, padded, columns, first, g);
        each_row(g, |inner, outer| {
            x[inner..inner + g.input[1]].copy_from_slice(&padded[outer..outer + g.input[1]])
        });
    });
}

/// Copies from the padded input to each row of the matrix. Never inlined: inside a closure, the compiler no longer knows that
/// its two slices do not overlap, which costs `resnet8` a tenth of its speed.
#[inline(never)]
fn copy(padded: &[f32], matrix: &mut [f32], columns: usize, first: usize, g: &Geometry) {
    let len = g.output[1];
    let positions = g.positions();
    let stride = g.window.stride;
    let step = g.padded()[1] * stride;
    each_matrix_row(g, |row, from| {
        let to = &mut matrix[row * columns + first..][..positions];
        let from = &padded[from..];
        for (y, to) in to.chunks_exact_mut(len).enumerate() {
            match stride {
                1 => to.copy_from_slice(&from[y * step..][..len]),
                _ => (to.iter_mut().zip(from[y * step..].iter().step_by(stride))).for_each(|(to, from)| *to = *from),
            }
        }
    });
}

/// Adds each row of the matrix to the padded input. Never inlined: see [`copy`].
#[inline(never)]
fn add(matrix: &[f32], padded: &mut [f32], columns: usize, first: usize, g: &Geometry) {
    let len = g.output[1];
    let positions = g.positions();
    let stride = g.window.stride;
    let step = g.padded()[1] * stride;
    each_matrix_row(g, |row, to| {
        let from = &matrix[row * columns + first..][..positions];
        let to = &mut padded[to..];
        for (y, from) in from.chunks_exact(len).enumerate() {
            match stride {
                1 => sum(&mut to[y * step..][..len], from),
                _ => (to[y * step..].iter_mut().step_by(stride).zip(from)).for_each(|(to, from)| *to += *from),
            }
        }
    });
}

/// `to[i] += from[i]`, eight values at a time: a row is short.
#[inline(always)]
fn sum(to: &mut [f32], from: &[f32]) {
    let ((to8, to), (from8, from)) = (to.as_chunks_mut::<8>(), from.as_chunks::<8>());
    for (to, from) in to8.iter_mut().zip(from8) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
    }
    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
}

/// Calls `f(row of the matrix, offset of its first value in the padded input)` for each row.
#[inline(always)]
fn each_matrix_row(g: &Geometry, mut f: impl FnMut(usize, usize)) {
    let [height, width] = g.padded();
    let [kh, kw] = g.kernel;
    for row in 0..g.patch() {
        let channel = row / (kh * kw);
        let ky = row / kw % kh;
        let kx = row % kw;
        f(row, (channel * height + ky) * width + kx);
    }
}

/// Calls `f(offset of a row in the input, offset of it in the padded input)` for each row.
fn each_row(g: &Geometry, mut f: impl FnMut(usize, usize)) {
    let [height, width] = g.padded();
    let [top, left] = g.window.pad;
    for channel in 0..g.channels {
        for y in 0..g.input[0] {
            f(
                (channel * g.input[0] + y) * g.input[1],
                (channel * height + top + y) * width + left,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::Window;
    use super::*;
    use crate::data::Rng;

    /// `<gather(x), y> = <x, scatter(y)>` for all x and y says that each is the transpose of the other.
    #[test]
    fn scatter_is_the_transpose_of_gather() {
        let mut rng = Rng::new(3);
        for (stride, pad, shape, kernel) in [
            (1, [0, 0], [2, 12, 12], [5, 5]),
            (2, [1, 2], [3, 7, 9], [3, 2]),
            (1, [0, 3], [6, 1, 40], [1, 5]),
            (3, [0, 0], [1, 1, 20], [1, 4]),
        ] {
            let window = Window {
                stride,
                pad,
                pool: [1, 1],
            };
            let [c, h, w] = shape;
            let g = Geometry::new(&[1, c, h, w], &[2, c, kernel[0], kernel[1]], &[2], window).unwrap();
            let (columns, first) = (g.positions() + 3, 2);
            let mut fill = |n: usize| (0..n).map(|_| rng.normal() as f32).collect::<Vec<_>>();
            let (x, y) = (fill(g.example()), fill(g.patch() * columns));
            let mut patches = vec![0.0; y.len()];
            gather(&x, &mut patches, columns, first, &g);
            let mut back = vec![0.0; x.len()];
            scatter(&y, &mut back, columns, first, &g);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            assert!((dot(&patches, &y) - dot(&x, &back)).abs() < 1e-3, "{window:?}");
        }
    }
}
