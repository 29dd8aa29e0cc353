//! Thresholds on magnitudes: percentiles, ranks, and the `f32` equivalent of an `f64` threshold.

use crate::finite::magnitude;

// The smallest nonzero magnitude.
pub(crate) const TINY: f32 = f32::from_bits(1);

/// The `k`-th largest magnitude. Range: `k` 1 to `values.len()`.
pub(crate) fn kth_largest(values: &[f32], k: usize) -> f32 {
    let mut magnitudes: Vec<u32> = values.iter().map(|&value| magnitude(value)).collect();
    let (_, kth, _) = magnitudes.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    f32::from_bits(*kth)
}

/// A threshold that selects exactly the nonzero values which reach the `q`-th percentile (of 100, by linear
/// interpolation) of all magnitudes; with distinct magnitudes these are `n - ceil(q (n - 1) / 100)` values. `values` is
/// not empty.
///
/// The percentile lies between two neighbors in sorted order and above the lower one, or equals it. So a value reaches
/// the percentile if it reaches the upper neighbor: interpolation is unnecessary, and squared values give the same
/// selection.
pub(crate) fn percentile(values: &[f32], q: f64) -> f32 {
    let last = values.len() - 1;
    let position = q * last as f64 / 100.0;
    // The factor keeps a rounding error from raising an exact integer by one: 99.9 % of 1000 is 999.
    let up = (position * (1.0 - 1e-12)).ceil() as usize;
    kth_largest(values, values.len() - up.min(last)).max(TINY)
}

/// The smallest nonzero magnitude that reaches `threshold`; infinite if none does.
pub(crate) fn reaching(threshold: f64) -> f32 {
    least_of(threshold, |magnitude| magnitude >= threshold)
}

/// The smallest nonzero magnitude whose square reaches `threshold`; infinite if none does.
pub(crate) fn square_reaching(threshold: f64) -> f32 {
    least_of(threshold.max(0.0).sqrt(), |magnitude| {
        magnitude * magnitude >= threshold
    })
}

/// The smallest nonzero magnitude that satisfies the monotone predicate `reaches`; `guess` is within one rounding of
/// it.
fn least_of(guess: f64, reaches: impl Fn(f64) -> bool) -> f32 {
    let mut magnitude = (guess as f32).next_down().max(TINY);
    while !reaches(magnitude.into()) {
        magnitude = magnitude.next_up();
    }
    magnitude
}

/// Sum of squares and number of the values whose magnitude reaches `threshold`. Range: `threshold > 0`.
#[inline(never)]
pub(crate) fn squares_reaching(threshold: f32, values: &[f32]) -> (f64, usize) {
    values.iter().fold((0.0, 0), |(sum, count), &value| {
        let reaches = value.abs() >= threshold;
        let square = f64::from(value) * f64::from(value);
        (sum + if reaches { square } else { 0.0 }, count + usize::from(reaches))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite::largest;
    use crate::rules::samples::{G8, laplace};

    /// Reference: sorts and interpolates.
    fn reference(values: &[f32], q: f64, of: impl Fn(f32) -> f64) -> f64 {
        let mut sorted: Vec<f64> = values.iter().map(|&value| of(value)).collect();
        sorted.sort_by(f64::total_cmp);
        let position = q * (sorted.len() - 1) as f64 / 100.0;
        let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
        low + position.fract() * (high - low)
    }

    #[test]
    fn what_reaches_the_percentile_is_what_reaches_the_interpolated_one() {
        assert!((reference(&G8, 75.0, |v| f64::from(v.abs())) - 0.525).abs() < 1e-6);
        for (len, q) in [
            (8, 75.0),
            (1, 97.0),
            (101, 97.0),
            (101, 7.0),
            (1000, 97.0),
            (999, 50.0),
            (77, 0.0),
            (77, 100.0),
        ] {
            let values = if len == 8 {
                G8.to_vec()
            } else {
                laplace(len, len as u64)
            };
            let threshold = percentile(&values, q);
            let mask =
                |reaches: &dyn Fn(f32) -> bool| values.iter().map(|&v| v != 0.0 && reaches(v)).collect::<Vec<bool>>();
            let ours = mask(&|v| v.abs() >= threshold);
            let (plain, squared) = (
                reference(&values, q, |v| f64::from(v.abs())),
                reference(&values, q, |v| f64::from(v).powi(2)),
            );
            assert_eq!(ours, mask(&|v| f64::from(v.abs()) >= plain), "{len} {q}");
            assert_eq!(ours, mask(&|v| f64::from(v).powi(2) >= squared), "{len} {q}");
            let kept = ours.iter().filter(|&&kept| kept).count();
            let zeros = values.iter().filter(|&&v| v == 0.0).count();
            let expected = len - (q * (len - 1) as f64 / 100.0).ceil() as usize;
            assert_eq!(kept, expected.min(len - zeros), "{len} {q}");
        }
    }

    #[test]
    fn ties_and_zeros_are_kept_or_left_together() {
        assert_eq!(percentile(&[1.0, -1.0, 1.0, 2.0], 50.0), 1.0);
        assert_eq!(percentile(&[0.0, 0.0, 0.0, 0.0, -3.0], 50.0), TINY);
        assert_eq!(percentile(&[1.0, -2.0], 1e-9), 2.0);
        let ramp: Vec<f32> = (0..1001).map(|i| i as f32).collect();
        assert_eq!(percentile(&ramp, 99.9), 999.0);
    }

    #[test]
    fn thresholds_are_the_least_float_that_reaches() {
        let third = 1.0f64 / 3.0;
        for threshold in [third, 0.5, 1e-46, 0.0, -3.0, 1.1e-38, 3e38, 16_777_217.0] {
            let least = reaching(threshold);
            assert!(f64::from(least) >= threshold && least > 0.0);
            assert!(least == TINY || f64::from(least.next_down()) < threshold, "{threshold}");
            let root = square_reaching(threshold);
            assert!(f64::from(root).powi(2) >= threshold && root > 0.0);
            assert!(
                root == TINY || f64::from(root.next_down()).powi(2) < threshold,
                "{threshold}"
            );
        }
        assert_eq!(reaching(1e39), f32::INFINITY);
        assert_eq!(square_reaching(1e80), f32::INFINITY);
        assert_eq!(reaching(f64::from(f32::MAX)), f32::MAX);
        assert_eq!(square_reaching(0.25), 0.5);
    }

    #[test]
    fn ranks_and_sums() {
        assert_eq!([1, 2, 8].map(|k| kth_largest(&G8, k)), [0.9, 0.6, 0.0]);
        assert_eq!((largest(&G8), largest(&[]), largest(&[-0.0])), (0.9, 0.0, 0.0));
        let (sum, count) = squares_reaching(0.5, &G8);
        assert!((sum - 1.42).abs() < 1e-6 && count == 3);
    }
}
