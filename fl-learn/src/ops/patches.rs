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
        return rows(g, |row, oy, from, len| {
            let to = row * columns + first + oy * len;
            copy(&mut matrix[to..to + len], &x[from..], g.window.stride);
        });
    }
    let [height, width] = g.padded();
    scratch::with(g.channels * height * width, |padded| {
        padded.fill(0.0);
        each_row(g, |inner, outer| {
            padded[outer..outer + g.input[1]].copy_from_slice(&x[inner..inner + g.input[1]])
        });
        rows(g, |row, oy, from, len| {
            let to = row * columns + first + oy * len;
            copy(&mut matrix[to..to + len], &padded[from..], g.window.stride);
        });
    });
}

/// Adds every value of one example's patches to the input value it came from: the transpose of [`gather`].
/// Shapes: as there; `x` is overwritten.
pub(super) fn scatter(matrix: &[f32], x: &mut [f32], columns: usize, first: usize, g: &Geometry) {
    if g.window.pad == [0, 0] {
        x.fill(0.0);
        return rows(g, |row, oy, from, len| {
            let at = row * columns + first + oy * len;
            add(&mut x[from..], &matrix[at..at + len], g.window.stride);
        });
    }
    let [height, width] = g.padded();
    scratch::with(g.channels * height * width, |padded| {
        padded.fill(0.0);
        rows(g, |row, oy, from, len| {
            let at = row * columns + first + oy * len;
            add(&mut padded[from..], &matrix[at..at + len], g.window.stride);
        });
        each_row(g, |inner, outer| {
            x[inner..inner + g.input[1]].copy_from_slice(&padded[outer..outer + g.input[1]])
        });
    });
}

/// Calls `f(row of the matrix, output row, offset into the padded input, output columns)` for each run of values.
#[inline(always)]
fn rows(g: &Geometry, mut f: impl FnMut(usize, usize, usize, usize)) {
    let ([height, width], [kh, kw], [oh, ow]) = (g.padded(), g.kernel, g.output);
    let mut row = 0;
    for channel in 0..g.channels {
        for ky in 0..kh {
            for kx in 0..kw {
                for oy in 0..oh {
                    f(row, oy, (channel * height + oy * g.window.stride + ky) * width + kx, ow);
                }
                row += 1;
            }
        }
    }
}

/// Calls `f(offset of a row in the input, offset of it in the padded input)` for each row.
fn each_row(g: &Geometry, mut f: impl FnMut(usize, usize)) {
    let ([height, width], [top, left]) = (g.padded(), g.window.pad);
    for channel in 0..g.channels {
        for y in 0..g.input[0] {
            f(
                (channel * g.input[0] + y) * g.input[1],
                (channel * height + top + y) * width + left,
            );
        }
    }
}

/// `to[i] = from[i * stride]`.
#[inline(always)]
fn copy(to: &mut [f32], from: &[f32], stride: usize) {
    if stride != 1 {
        to.iter_mut()
            .zip(from.iter().step_by(stride))
            .for_each(|(to, from)| *to = *from);
        return;
    }
    // Eight values are one or two registers: worth more than a call to copy a few bytes.
    let from = &from[..to.len()];
    let (to8, to) = to.as_chunks_mut::<8>();
    let (from8, from) = from.as_chunks::<8>();
    to8.iter_mut().zip(from8).for_each(|(to, from)| *to = *from);
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// `to[i * stride] += from[i]`.
#[inline(always)]
fn add(to: &mut [f32], from: &[f32], stride: usize) {
    if stride != 1 {
        to.iter_mut()
            .step_by(stride)
            .zip(from)
            .for_each(|(to, from)| *to += *from);
        return;
    }
    let to = &mut to[..from.len()];
    let (to8, to) = to.as_chunks_mut::<8>();
    let (from8, from) = from.as_chunks::<8>();
    to8.iter_mut()
        .zip(from8)
        .for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| *to += *from));
    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
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
