//! Elementary functions and sums over slices, compiled for the vector instructions of the machine that runs them.
//!
//! Plain loops in a fixed order, without fused multiply-adds: every machine gets the same bits. `libm`'s functions do not
//! vectorize, hence the polynomials.

use pulp::Arch;

/// Calls `f`, whose loops the compiler vectorizes with the best instructions of this machine. `f` and all that it calls
/// must be `#[inline(always)]`, which rules out `for_each`: the `fold` behind it may stay a call, compiled for any machine.
#[inline]
pub(super) fn vectorized<T>(f: impl FnOnce() -> T) -> T {
    Arch::new().dispatch(f)
}

/// `e^x`, within 2 units in the last place; 0 below -87.3, the largest finite value above 88.7, NaN of NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, the first with 9 trailing zeros, so that n times it is exact (Cody and Waite 1980).
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    const LOW: f32 = -87.3;
    const HIGH: f32 = 88.0;
    let bounded = if x > HIGH { HIGH } else { x };
    let bounded = if bounded < LOW { LOW } else { bounded };
    let shifted = bounded * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN_2_HIGH) - n * LN_2_LOW;
    // Minimax polynomial of (e^r - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2] (Cephes' expf).
    let p = 1.987_569_2e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_6e-1;
    let p = p * r + 0.5;
    let value = (p * r * r + r) + 1.0;
    // 2^n by its exponent bits; wraps harmlessly for NaN, whose polynomial is NaN.
    let exponent = (shifted.to_bits().wrapping_sub(ROUND.to_bits())).wrapping_add(127) << 23;
    let value = value * f32::from_bits(exponent);
    if x < LOW { 0.0 } else { value }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Hyperbolic tangent, within a few units in the last place, also near 0.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let square = x * x;
    // Rational-free polynomial below 0.625 (Cephes' tanhf), where 1 - 2 / (e^2x + 1) would cancel.
    let p = -5.704_988_7e-3;
    let p = p * square + 2.063_908_8e-2;
    let p = p * square - 5.373_971_6e-2;
    let p = p * square + 1.333_144_2e-1;
    let p = p * square - 3.333_328e-1;
    let near = p * square * x + x;
    let far = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    let far = far.copysign(x);
    if x.abs() < 0.625 { near } else { far }
}

/// Lanes of a sum: fixed, so that the order of additions does not depend on the machine.
const LANES: usize = 16;

/// Sum of `f` over pairs of values, in fixed lanes. Shapes: `a` and `b` of the same length.
#[inline(always)]
pub(super) fn sum_of(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += f(*a, *b);
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane += f(*a, *b);
    }
    // Halves are added to halves: the same tree on every machine.
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
pub(super) fn sum(values: &[f32]) -> f32 {
    sum_of(values, values, |a, _| a)
}

/// Sum of products. Shapes: `a` and `b` of the same length.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| a * b)
}

/// The largest value, `-inf` of nothing; NaN is passed over.
#[inline(always)]
pub(super) fn largest(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    let all = lanes.iter().chain(rest);
    all.fold(
        f32::NEG_INFINITY,
        |best, value| if *value > best { *value } else { best },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest relative error of `f` against `want` on [-range, range].
    fn worst(range: f32, f: impl Fn(f32) -> f32, want: impl Fn(f64) -> f64) -> f64 {
        let points = (-20_000..=20_000).map(|i| i as f32 / 20_000.0 * range);
        let error = |x: f32| {
            let want = want(f64::from(x));
            (f64::from(f(x)) - want).abs() / want.abs().max(1e-30)
        };
        points.filter(|x| *x != 0.0).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn functions_are_exact_to_a_few_units_in_the_last_place() {
        let ulp = f64::from(f32::EPSILON);
        assert!(worst(87.0, exp, f64::exp) < 2.0 * ulp);
        assert!(worst(1.0, tanh, f64::tanh) < 3.0 * ulp);
        assert!(worst(30.0, tanh, f64::tanh) < 3.0 * ulp);
        assert!(worst(80.0, sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 4.0 * ulp);
        assert_eq!((exp(0.0), tanh(0.0), sigmoid(0.0)), (1.0, 0.0, 0.5));
    }

    #[test]
    fn far_values_and_nan_are_kept_in_order() {
        assert_eq!((exp(f32::NEG_INFINITY), exp(-1000.0)), (0.0, 0.0));
        assert!(exp(1000.0).is_finite() && exp(f32::INFINITY) > 1e38);
        assert_eq!((tanh(1000.0), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!((sigmoid(1000.0), sigmoid(-1000.0) < 1e-37), (1.0, true));
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
    }

    #[test]
    fn vector_instructions_change_no_bit() {
        let values: Vec<f32> = (0..1003).map(|i| ((i * 37) % 101) as f32 / 9.0 - 5.0).collect();
        let here: Vec<f32> = values.iter().map(|x| tanh(*x) * exp(*x)).collect();
        let mut there = vec![0.0; values.len()];
        vectorized(
            #[inline(always)]
            || {
                there
                    .iter_mut()
                    .zip(&values)
                    .for_each(|(out, x)| *out = tanh(*x) * exp(*x));
            },
        );
        assert_eq!(here, there);
        assert_eq!(sum(&values), vectorized(|| sum(&values)));
        assert_eq!(
            largest(&values),
            values.iter().copied().fold(f32::NEG_INFINITY, f32::max)
        );
        assert_eq!((sum(&[]), largest(&[])), (0.0, f32::NEG_INFINITY));
    }
}
