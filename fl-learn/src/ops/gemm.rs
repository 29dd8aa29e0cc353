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

    /// The first `cols` values of each of `rows` stretches of `row_stride` values.
    pub(super) fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert_fits(data.len(), rows, cols, row_stride);
        Self {
            data,
            rows,
            cols,
            row_stride,
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

/// A matrix of `rows` stretches of `row_stride` values, of which the first `cols` belong to it, lies within `len` values.
fn assert_fits(len: usize, rows: usize, cols: usize, row_stride: usize) {
    let end = match (rows, cols) {
        (0, _) | (_, 0) => Some(0),
        _ => (rows - 1)
            .checked_mul(row_stride)
            .and_then(|last| last.checked_add(cols)),
    };
    assert!(
        end.is_some_and(|end| end <= len) && (rows <= 1 || cols <= row_stride),
        "{rows} x {cols}, a row every {row_stride}, in {len} values"
    );
}

/// `out = a * b`, or `out += a * b` if `add`. Shapes: `a: [m, k]`, `b: [k, n]`, `out: [m * n]`, row-major.
pub(super) fn gemm(out: &mut [f32], a: View<'_>, b: View<'_>, add: bool) {
    assert_eq!(out.len(), a.rows * b.cols, "{} x {}", a.rows, b.cols);
    gemm_strided(out, b.cols, a, b, add);
}

/// As [`gemm`], where row `i` of the result begins at `out[i * row_stride]`; what lies between the rows is left alone.
pub(super) fn gemm_strided(out: &mut [f32], row_stride: usize, a: View<'_>, b: View<'_>, add: bool) {
    let m = a.rows;
    let k = a.cols;
    let n = b.cols;
    assert_eq!(b.rows, k, "[{m}, {k}] times [{}, {n}]", b.rows);
    assert_fits(out.len(), m, n, row_stride);
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !add {
            (0..m).for_each(|row| out[row * row_stride..][..n].fill(0.0));
        }
        return;
    }
    // SAFETY: `assert_fits` above says that all rows lie inside `out` and do not overlap; `out` cannot overlap `a` or `b`
    // because it is borrowed mutably.
    #[allow(unsafe_code)]
    unsafe {
        product(out.as_mut_ptr(), row_stride, a, b, add);
    }
}

/// `a * b`, row-major. Does not fill the result with zeros first, which takes as long as a small product.
pub(super) fn gemm_new(a: View<'_>, b: View<'_>) -> Vec<f32> {
    assert_eq!(
        b.rows, a.cols,
        "[{}, {}] times [{}, {}]",
        a.rows, a.cols, b.rows, b.cols
    );
    let len = a.rows * b.cols;
    if len == 0 || a.cols == 0 {
        return vec![0.0; len];
    }
    let mut out = Vec::with_capacity(len);
    // SAFETY: there is room for `a.rows` rows of `b.cols` values, in memory of its own. The product without `add` reads none
    // of them and writes them all.
    #[allow(unsafe_code)]
    unsafe {
        product(out.as_mut_ptr(), b.cols, a, b, false);
        out.set_len(len);
    }
    out
}

/// The product of matrices that are not empty.
///
/// # Safety
/// From `out` on there must be memory for `a.rows` rows of `b.cols` values, one every `row_stride`, that do not overlap each
/// other, `a` or `b`; if `add`, they must hold values.
#[allow(unsafe_code)]
unsafe fn product(out: *mut f32, row_stride: usize, a: View<'_>, b: View<'_>, add: bool) {
    let m = a.rows;
    let k = a.cols;
    let n = b.cols;
    assert!(b.rows == k && k > 0 && m > 0 && n > 0);
    // SAFETY: a `View` is built by `new` and `strided` alone, whose assertions make every index `i * row_stride + j *
    // col_stride` with `i < rows`, `j < cols` lie inside its slice (and `t` only exchanges the two). The caller says the same
    // of `out`.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out,
            1,
            row_stride as isize,
            add,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
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
            gemm(&mut out, View::new(&a, m, k), View::new(&b, k, n), false);
            assert_eq!(gemm_new(View::new(&a, m, k), View::new(&b, k, n)), out);
        }
    }

    #[test]
    fn strided_products_leave_the_rest_alone() {
        let mut rng = Rng::new(2);
        let (m, k, n) = (5, 7, 40);
        let mut fill = |len: usize| (0..len).map(|_| rng.normal() as f32).collect::<Vec<_>>();
        let (a, b) = (fill(m * (k + 3)), fill(k * (n + 1)));
        let tight = |values: &[f32], rows: usize, cols: usize, stride: usize| -> Vec<f32> {
            (0..rows)
                .flat_map(|row| values[row * stride..][..cols].to_vec())
                .collect()
        };
        let want = naive(&tight(&a, m, k, k + 3), &tight(&b, k, n, n + 1), (m, k, n));
        let mut out = vec![9.0; m * (n + 2)];
        let (a, b) = (View::strided(&a, m, k, k + 3), View::strided(&b, k, n, n + 1));
        gemm_strided(&mut out, n + 2, a, b, false);
        let have = tight(&out, m, n, n + 2);
        assert!(have.iter().zip(&want).all(|(x, y)| (x - y).abs() < 1e-3));
        assert!((0..m).all(|row| out[row * (n + 2) + n..][..2] == [9.0, 9.0]));
    }
}
