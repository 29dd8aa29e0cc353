//! Elementary functions with the same bits on every machine: of additions, multiplications, divisions and tables alone. Those of
//! the standard library are the system's, which has variants for processors. Whatever decides a frame, a first weight, a share of
//! the data or a learning rate takes these; `clippy.toml` lists the others.
//!
//! They are musl's, by way of the crate `libm`, and err by less than one unit in the last place, [`tanh`] by less than three.

use std::f64::consts::{LN_2, SQRT_2};

pub use libm::{cos, exp, exp2, log as ln, log2, log10, pow, sin, tanh};

// Fraction bits of a double.
const FRACTION: u32 = 52;

/// `number * number`.
#[inline(always)]
pub fn square(number: f64) -> f64 {
    number * number
}

/// The binary logarithm of a positive normal number, to 1e-9: several times as fast as [`log2`].
#[inline(always)]
pub(crate) fn coarse_log2(number: f64) -> f64 {
    let bits = number.to_bits();
    // The exponent of the power of two for which the quotient is from 1 / sqrt(2) to sqrt(2).
    let middle = (1.0 / SQRT_2).to_bits();
    let exponent = (bits.wrapping_sub(middle) as i64) >> FRACTION;
    let mantissa = f64::from_bits(bits.wrapping_sub((exponent as u64) << FRACTION));
    // ln m = 2 artanh s with s = (m - 1) / (m + 1), at most 0.172: five terms of its series leave less than 2e-10.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = 1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0 + square * (1.0 / 11.0))));
    exponent as f64 + (2.0 / LN_2) * s * (1.0 + square * series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    type Function = fn(f64) -> f64;

    /// Ours, the standard library's, and the range of arguments.
    const FUNCTIONS: [(&str, Function, Function, [f64; 2]); 9] = [
        ("cos", cos, f64::cos, [-1e4, 1e4]),
        ("exp", exp, f64::exp, [-745.0, 709.0]),
        ("exp2", exp2, f64::exp2, [-1074.0, 1023.9]),
        ("ln", |x| ln(exp2(x)), |x| exp2(x).ln(), [-1074.0, 1023.9]),
        ("log2", |x| log2(exp2(x)), |x| exp2(x).log2(), [-1074.0, 1023.9]),
        ("log10", |x| log10(exp2(x)), |x| exp2(x).log10(), [-1074.0, 1023.9]),
        ("pow", |x| pow(exp2(x), 1.7), |x| exp2(x).powf(1.7), [-600.0, 600.0]),
        ("sin", sin, f64::sin, [-1e4, 1e4]),
        ("tanh", tanh, f64::tanh, [-22.0, 22.0]),
    ];

    fn arguments([low, high]: [f64; 2]) -> impl Iterator<Item = f64> {
        let wide = (0..10_000).map(move |at| low + (high - low) * f64::from(at) / 9999.0);
        let near = (-5000..5000).map(move |at| (f64::from(at) / 5000.0).clamp(low, high));
        wide.chain(near)
    }

    #[test]
    fn each_function_errs_by_its_bound_at_most() {
        for (name, ours, std, range) in FUNCTIONS {
            for x in arguments(range) {
                let (found, expected) = (ours(x), std(x));
                // The standard library's errs by as much.
                let most = if name == "tanh" { 6 } else { 2 };
                let apart = found.to_bits().abs_diff(expected.to_bits());
                assert!(apart <= most, "{name}({x:?}) is {found:?}, not {expected:?}");
            }
        }
    }

    /// Frames and first weights depend on these bits.
    #[test]
    fn each_function_has_these_bits() {
        let found = FUNCTIONS.map(|(name, ours, _, range)| {
            let bytes: Vec<u8> = arguments(range).flat_map(|x| ours(x).to_le_bytes()).collect();
            (name, format!("{:016x}", Digest::of(&bytes).short()))
        });
        let golden = [
            ("cos", "7174cea45ee47df6"),
            ("exp", "6056e4590f99a844"),
            ("exp2", "f9833a2f9736d7ae"),
            ("ln", "47155ddbda117514"),
            ("log2", "dbea125725bdfc3e"),
            ("log10", "697958e5f457041e"),
            ("pow", "4f8e432161b76348"),
            ("sin", "15502c60fba2dcc8"),
            ("tanh", "0921a9423c42ca6e"),
        ];
        assert_eq!(found.each_ref().map(|(name, digest)| (*name, digest.as_str())), golden);
    }

    #[test]
    fn the_coarse_logarithm_errs_by_less_than_1e_9() {
        for at in -4000..4000 {
            let number = (f64::from(at) * 0.0137).exp2() * 1.000_01;
            assert!((coarse_log2(number) - number.log2()).abs() < 1e-9, "{number}");
        }
        assert_eq!([1.0, 2.0, 1024.0, 0.25].map(coarse_log2), [0.0, 1.0, 10.0, -2.0]);
        assert!((coarse_log2(f64::MAX) - 1024.0).abs() < 1e-9 && coarse_log2(f64::MIN_POSITIVE) == -1022.0);
    }
}
