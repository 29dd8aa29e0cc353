//! In-place Walsh-Hadamard transform, not normalized: `n log2 n` additions in a fixed order.

/// Transforms `values`; `values.len()` is a power of two. Two transforms multiply each value by `values.len()`.
pub(crate) fn transform(values: &mut [f32]) {
    let (groups, rest) = values.as_chunks_mut::<8>();
    if groups.is_empty() {
        return small(rest);
    }
    eight(groups);
    let mut half = 8;
    while half * 4 <= values.len() {
        values
            .chunks_exact_mut(half * 4)
            .for_each(|part| two_stages(part, half));
        half *= 4;
    }
    if half < values.len() {
        let (low, high) = values.split_at_mut(half);
        one_stage(low, high);
    }
}

/// Transforms fewer than eight values.
fn small(values: &mut [f32]) {
    let mut half = 1;
    while half < values.len() {
        for part in values.chunks_exact_mut(half * 2) {
            let (low, high) = part.split_at_mut(half);
            one_stage(low, high);
        }
        half *= 2;
    }
}

/// Stages 1, 2 and 4 in registers.
#[inline(never)]
fn eight(groups: &mut [[f32; 8]]) {
    for v in groups {
        let a = [v[0] + v[1], v[0] - v[1], v[2] + v[3], v[2] - v[3]];
        let b = [v[4] + v[5], v[4] - v[5], v[6] + v[7], v[6] - v[7]];
        let a = [a[0] + a[2], a[1] + a[3], a[0] - a[2], a[1] - a[3]];
        let b = [b[0] + b[2], b[1] + b[3], b[0] - b[2], b[1] - b[3]];
        for lane in 0..4 {
            v[lane] = a[lane] + b[lane];
            v[lane + 4] = a[lane] - b[lane];
        }
    }
}

#[inline(never)]
fn one_stage(low: &mut [f32], high: &mut [f32]) {
    for (low, high) in low.iter_mut().zip(high) {
        (*low, *high) = (*low + *high, *low - *high);
    }
}

/// Stages `half` and `2 * half` in one pass over `4 * half` values, which halves the memory traffic.
#[inline(never)]
fn two_stages(values: &mut [f32], half: usize) {
    let (low, high) = values.split_at_mut(half * 2);
    let ((a, b), (c, d)) = (low.split_at_mut(half), high.split_at_mut(half));
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        let sum = *a + *b;
        let difference = *a - *b;
        let other_sum = *c + *d;
        let other_difference = *c - *d;
        (*a, *c) = (sum + other_sum, sum - other_sum);
        (*b, *d) = (difference + other_difference, difference - other_difference);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::laws::{dot, gaussian};

    #[test]
    fn it_is_the_matrix_of_signs() {
        for len in [1usize, 2, 4, 8, 16, 32, 64, 512] {
            let values = gaussian(len, 1);
            let mut out = values.clone();
            transform(&mut out);
            for (row, out) in out.iter().enumerate() {
                let sign = |col: usize| {
                    if (row & col).count_ones().is_multiple_of(2) {
                        1.0
                    } else {
                        -1.0
                    }
                };
                let expected: f64 = (0..len).map(|col| sign(col) * f64::from(values[col])).sum();
                assert!((f64::from(*out) - expected).abs() < 1e-4, "{len} {row}");
            }
        }
    }

    #[test]
    fn twice_is_the_identity_and_the_norm_is_kept() {
        for len in [1usize, 2, 1024, 32_768, 65_536] {
            let values = gaussian(len, 2);
            let mut out = values.clone();
            transform(&mut out);
            let norm = dot(&values, &values);
            assert!((dot(&out, &out) / len as f64 / norm - 1.0).abs() < 1e-6);
            transform(&mut out);
            let worst = values
                .iter()
                .zip(&out)
                .map(|(value, out)| (value - out / len as f32).abs())
                .fold(0.0, f32::max);
            assert!(worst < 4e-6, "{len}: {worst}");
        }
    }
}
