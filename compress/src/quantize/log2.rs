//! A binary logarithm of additions, multiplications and one division: the same bits on every machine, unlike that of the
//! system's library, and several times as fast.

use std::f64::consts::{LN_2, SQRT_2};

/// Fraction bits of a double.
const FRACTION: u32 = 52;

/// The binary logarithm of a positive normal number, to 1e-9.
#[inline(always)]
pub(crate) fn log2(number: f64) -> f64 {
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

    #[test]
    fn it_is_the_logarithm() {
        for at in -4000..4000 {
            let number = (f64::from(at) * 0.0137).exp2() * 1.000_01;
            assert!((log2(number) - number.log2()).abs() < 1e-9, "{number}");
        }
        assert_eq!([1.0, 2.0, 1024.0, 0.25].map(log2), [0.0, 1.0, 10.0, -2.0]);
        assert!((log2(f64::MAX) - 1024.0).abs() < 1e-9 && log2(f64::MIN_POSITIVE) == -1022.0);
    }
}
