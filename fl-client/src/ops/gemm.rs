//! Matrix products over slices: the one place that calls the `gemm` crate, and the only unsafe code of this crate.

/// A matrix over a slice: element `(i, j)` is `data[i * row_stride + j * col_stride]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> View<'a> {
    /// A row-major matrix. Shapes: `data: [rows * cols]`.
    pub(super) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "a matrix of {rows} x {cols}");
        Self {
            data,
            rows,
            cols,
            row_stride: cols,
            col_stride: 1,
        }
    }

    /// The same elements, rows and columns exchanged.
    pub(super) fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// `out = a * b`, or `out += a * b` if `add`. Shapes: `a: [m, k]`, `b: [k, n]`, `out: [m * n]`, row-major.
///
/// # Panics
/// If the shapes do not agree.
pub(super) fn gemm(out: &mut [f32], a: View<'_>, b: View<'_>, add: bool) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    assert!(
        b.rows == k && out.len() == m * n,
        "[{m}, {k}] times [{}, {n}] into {}",
        b.rows,
        out.len()
    );
    if k == 0 && !add {
        out.fill(0.0);
    }
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    let width = strip();
    for first in (0..n).step_by(width) {
        product(out, a, b, add, first, width.min(n - first));
    }
}

/// Columns multiplied at a time. With AVX-512 the crate's kernel for 64 columns runs at little more than half the
/// speed of that for 32 (measured: 75 against 128 GFlop/s), and it takes the wider one wherever there are enough.
#[cfg(target_arch = "x86_64")]
fn strip() -> usize {
    if std::arch::is_x86_feature_detected!("avx512f") {
        32
    } else {
        usize::MAX
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn strip() -> usize {
    usize::MAX
}

/// The columns of the product from `first` on, `count` of them. The caller has checked the shapes.
#[allow(unsafe_code)]
fn product(out: &mut [f32], a: View<'_>, b: View<'_>, add: bool, first: usize, count: usize) {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    assert!(b.rows == k && out.len() == m * n && first + count <= n && k > 0 && m > 0);
    // SAFETY: a `View` is built by `new` alone, whose assertion makes every index `i * row_stride + j * col_stride`
    // with `i < rows`, `j < cols` lie inside its slice (and `t` only exchanges the two). `out` holds `m` rows of `n`,
    // and cannot overlap `a` or `b` because it is borrowed mutably. Columns `first..first + count` exist in `b` and
    // `out` by the assertion above, so both shifted pointers and all they reach stay within their slices.
    unsafe {
        gemm::gemm(
            m,
            count,
            k,
            out.as_mut_ptr().add(first),
            1,
            n as isize,
            add,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr().add(first * b.col_stride),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Rng;

    fn naive(a: &[f32], b: &[f32], (m, k, n): (usize, usize, usize)) -> Vec<f32> {
        let cell = |i: usize, j: usize| (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
        (0..m * n).map(|at| cell(at / n, at % n)).collect()
    }

    #[test]
    fn products_equal_the_naive_ones_whatever_the_strides() {
        let mut rng = Rng::new(1);
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (32, 25, 40), (17, 64, 33), (5, 0, 4)] {
            let mut fill = |len: usize| (0..len).map(|_| rng.normal() as f32).collect::<Vec<_>>();
            let (a, b) = (fill(m * k), fill(k * n));
            let want = naive(&a, &b, (m, k, n));
            let a_t: Vec<f32> = (0..k * m).map(|at| a[at % m * k + at / m]).collect();
            let mut out = vec![1.0; m * n];
            for view in [View::new(&a, m, k), View::new(&a_t, k, m).t()] {
                gemm(&mut out, view, View::new(&b, k, n), false);
                assert!(out.iter().zip(&want).all(|(x, y)| (x - y).abs() < 1e-3), "{m} {k} {n}");
            }
            gemm(&mut out, View::new(&a, m, k), View::new(&b, k, n), true);
            assert!(
                out.iter().zip(&want).all(|(x, y)| (x - 2.0 * y).abs() < 1e-3),
                "{m} {k} {n}"
            );
        }
    }
}
