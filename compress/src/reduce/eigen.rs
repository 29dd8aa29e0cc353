//! Eigenvalues of small symmetric matrices.

use crate::fidelity::dot;
use crate::simd::vectorized;

// Sweeps of the eigenvalue iteration; it converges quadratically.
const SWEEPS: usize = 12;
// Cosine of two columns that count as orthogonal: far below the digits of a float.
const NEAR: f64 = 1e-10;

/// `q q^T`: `[rank, rank]`.
pub(crate) fn gram(q: &[f32], rank: usize, cols: usize) -> Vec<f64> {
    let mut out = vec![0.0; rank * rank];
    for a in 0..rank {
        for b in 0..=a {
            let sum = dot(&q[a * cols..][..cols], &q[b * cols..][..cols]);
            (out[a * rank + b], out[b * rank + a]) = (sum, sum);
        }
    }
    out
}

/// Eigenvalues and eigenvectors (by rows) of a symmetric matrix, by cyclic Jacobi rotations.
pub(crate) fn eigen(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut v = vec![0.0; n * n];
    (0..n).for_each(|i| v[i * n + i] = 1.0);
    vectorized(
        #[inline(always)]
        || turn_all(&mut a, &mut v, n),
    );
    ((0..n).map(|i| a[i * n + i]).collect(), v)
}

/// Makes `a` diagonal and turns `v` with it.
#[inline(always)]
fn turn_all(a: &mut [f64], v: &mut [f64], n: usize) {
    for _ in 0..SWEEPS {
        let mut turned = false;
        for p in 0..n {
            for q in p + 1..n {
                let off = a[p * n + q];
                if off.abs() <= NEAR * (a[p * n + p] * a[q * n + q]).abs().sqrt() {
                    continue;
                }
                turned = true;
                let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * off);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t / (t * t + 1.0).sqrt();
                for k in 0..n {
                    let x = a[k * n + p];
                    let y = a[k * n + q];
                    (a[k * n + p], a[k * n + q]) = (c * x - s * y, s * x + c * y);
                }
                let (before, after) = a.split_at_mut(q * n);
                turn(&mut before[p * n..][..n], &mut after[..n], c, s);
                let (before, after) = v.split_at_mut(q * n);
                turn(&mut before[p * n..][..n], &mut after[..n], c, s);
            }
        }
        if !turned {
            break;
        }
    }
}

#[inline(always)]
fn turn(x: &mut [f64], y: &mut [f64], c: f64, s: f64) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}
