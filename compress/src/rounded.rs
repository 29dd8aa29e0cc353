//! Rounding a model to a grid, so that a snapshot of it is short and exact.
//!
//! Trained values become multiples of a power of two, the step, of each tensor: with `m` the largest magnitude and `e` the
//! least integer with `m <= 2^e`, the step is `2^(e - bits + 1)`. Nothing in this depends on an order, so server and clients
//! round equal models to equal bits. A value becomes the nearest multiple, ties to even, which `f32` holds exactly: at most
//! `2^(bits - 1)` steps. Rounding twice changes nothing, because the largest value is a multiple of its new step too.
//! Buffers and counters are left as they are.
//!
//! [`round_changes`] rounds what is added to buffers in another way: by each value.

use serde::{Deserialize, Serialize};

use crate::finite::largest;
use crate::layout::{Layout, Role};

// Least and most bits.
const RANGE: std::ops::RangeInclusive<u8> = 4..=20;
// Least significant bits of a rounded buffer. Statistics of a batch are less precise, and half precision has 11. Most
// changes are a sixteenth of their value: 10 bits of these are left, and the others are zeros, which a coder removes.
const BUFFER_BITS: i32 = 14;
// Exponent of the smallest positive `f32`, a subnormal.
const LOWEST: i32 = -149;
// Largest exponent of a power of two in `f32`.
const HIGHEST: i32 = 127;

/// How finely a model is rounded: the bits of a value, of which one is the sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct ModelRounding(u8);

impl TryFrom<u8> for ModelRounding {
    type Error = String;

    fn try_from(bits: u8) -> Result<Self, String> {
        match RANGE.contains(&bits) {
            true => Ok(Self(bits)),
            false => Err(format!(
                "a model is rounded to {} to {} bits a value, not {bits}",
                RANGE.start(),
                RANGE.end()
            )),
        }
    }
}

impl From<ModelRounding> for u8 {
    fn from(rounding: ModelRounding) -> Self {
        rounding.0
    }
}

impl ModelRounding {
    /// Bits of a value.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Rounds the trained values of a model. Values must be finite, and stay so. Idempotent. Shapes: `model: [layout.len()]`.
    pub fn round(self, layout: &Layout, model: &mut [f32]) {
        for tensor in layout.tensors().iter().filter(|tensor| tensor.role == Role::Trained) {
            self.round_tensor(&mut model[tensor.offset..tensor.offset + tensor.len]);
        }
    }

    fn round_tensor(self, values: &mut [f32]) {
        let Some(above) = ceil_exponent(largest(values)) else {
            // Negative zeros are multiples too, but not of a level.
            values.fill(0.0);
            return;
        };
        let step = power_of_two((above - i32::from(self.0) + 1).max(LOWEST));
        // 2^128 is no `f32`: such a value is rounded down.
        let most = if above > HIGHEST {
            ((1u32 << (self.0 - 1)) - 1) as f64
        } else {
            f64::MAX
        };
        for value in values {
            let level = (f64::from(*value) / step).round_ties_even().clamp(-most, most);
            // A sum with zero has no negative zero.
            *value = (level * step + 0.0) as f32;
        }
    }
}

/// Rounds each of `changes` to the nearest multiple, ties to even, of a step by which the value after the change has [`BUFFER_BITS`]
/// significant bits, and more by as many as the change is beyond an eighth of that value: a variance that falls from 1 to 0.001 in
/// a round is nearly exact. The value is off by at most a 2^14th of itself and keeps its sign. A change to zero, to a subnormal
/// `f32` or to one that could not be rounded up stays as it is. Shapes: `before` and `changes` are equally long.
pub(crate) fn round_changes(before: &[f32], changes: &mut [f32]) {
    let exponent = |value: f32| (value.to_bits() >> 23 & 0xff) as i32 - 127;
    for (change, before) in changes.iter_mut().zip(before) {
        let after = exponent(before + *change);
        if (-126..HIGHEST).contains(&after) {
            let more = (exponent(*change) - after + 3).max(0);
            let step = power_of_two(after + 1 - BUFFER_BITS - more);
            *change = ((f64::from(*change) / step).round_ties_even() * step) as f32;
        }
    }
}

/// Least `e` with `value <= 2^e`, from -149 to 128; `None` for zero. `value` is finite and not negative.
fn ceil_exponent(value: f32) -> Option<i32> {
    let bits = value.to_bits();
    let biased = (bits >> 23) as i32;
    let fraction = bits & 0x7f_ffff;
    match biased {
        0 => {
            let high = fraction.checked_ilog2()? as i32;
            Some(LOWEST + high + i32::from(!fraction.is_power_of_two()))
        }
        _ => Some(biased - 127 + i32::from(fraction != 0)),
    }
}

/// `2^exponent`, exactly.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The largest power of two of which all `values` are multiples, if there is one that a section may have as its step: it is a
/// normal `f32`, no value is a negative zero, and no multiple is beyond `2^20`.
pub(crate) fn grid(values: &[f32]) -> Option<f32> {
    let mut lowest = i32::MAX;
    let mut any_negative_zero = false;
    for value in values {
        let bits = value.to_bits();
        any_negative_zero |= bits == 1 << 31;
        let biased = bits >> 23 & 0xff;
        let fraction = bits & 0x7f_ffff;
        if bits << 1 != 0 {
            let significand = if biased == 0 { fraction } else { fraction | 1 << 23 };
            lowest = lowest.min(biased.max(1) as i32 + LOWEST - 1 + significand.trailing_zeros() as i32);
        }
    }
    if any_negative_zero || lowest == i32::MAX {
        return None;
    }
    let step = power_of_two(lowest) as f32;
    let fits = f64::from(largest(values)) <= f64::from(step) * f64::from(1 << RANGE.end());
    (step.is_normal() && fits).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Dtype, TensorSpec};
    use crate::quantize::laws::heavy;

    fn rounding(bits: u8) -> ModelRounding {
        ModelRounding::try_from(bits).unwrap()
    }

    fn rounded(values: &[f32], bits: u8) -> Vec<f32> {
        let layout = Layout::new([("a", vec![values.len()])]).unwrap();
        let mut model = values.to_vec();
        rounding(bits).round(&layout, &mut model);
        model
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn a_value_becomes_the_nearest_multiple_of_the_step_with_ties_to_even() {
        // The largest magnitude is 3, at most 2^2, so a step is 2^(2 - 3) = 0.5.
        let values = [3.0, -3.0, 0.25, 0.26, 0.75, -0.74, -0.25, -0.0];
        let expected = [3.0, -3.0, 0.0, 0.5, 1.0, -0.5, 0.0, 0.0];
        assert_eq!(bits(&rounded(&values, 4)), bits(&expected));
    }

    #[test]
    fn rounding_is_idempotent_and_moves_no_value_by_more_than_half_a_step() {
        let extremes = [f32::MAX, -f32::MAX, 1e38, f32::MIN_POSITIVE, 1e-45, -3e-45, 0.0];
        let near_a_power = [0.999_999, 0.5, -0.499_999, 1.000_001, 1.0];
        let tiny = [1e-45, 4e-45, -1e-40, 0.0];
        for values in [
            &heavy(3000, 1)[..],
            &extremes,
            &near_a_power,
            &tiny,
            &[-0.0, 0.0],
            &[1.0],
        ] {
            for bits_of in RANGE {
                let once = rounded(values, bits_of);
                assert_eq!(bits(&rounded(&once, bits_of)), bits(&once), "{bits_of} bits");
                assert!(once.iter().all(|value| value.is_finite()));
                let most = f64::from(largest(values));
                for (value, rounded) in values.iter().zip(&once) {
                    let error = (f64::from(*value) - f64::from(*rounded)).abs();
                    let clamped = most > f64::from(f32::MAX) / 2.0;
                    let share = if clamped { 2.0 } else { 1.0 } / f64::from(1u32 << (bits_of - 1));
                    assert!(error <= most * share, "{value} {rounded} {bits_of} bits");
                }
            }
        }
    }

    #[test]
    fn the_error_is_exact_in_f32() {
        let values = heavy(3000, 2);
        for (value, rounded) in values.iter().zip(rounded(&values, 8)) {
            assert_eq!(f64::from(value - rounded), f64::from(*value) - f64::from(rounded));
        }
    }

    #[test]
    fn each_tensor_has_its_own_step_and_buffers_and_counters_stay() {
        let spec = |name: &str, dtype, role| TensorSpec::new(name, &[2], dtype, role);
        let layout = Layout::of([
            spec("a", Dtype::F32, Role::Trained),
            spec("b", Dtype::F32, Role::Trained),
            spec("c", Dtype::F32, Role::Buffer),
            spec("d", Dtype::I64, Role::Counter),
        ]);
        let mut model = vec![1.0, 0.3, 100.0, 0.3, 0.3, 0.1, 16_777_215.0, 3.0];
        rounding(4).round(&layout.unwrap(), &mut model);
        assert_eq!(model, [1.0, 0.25, 96.0, 0.0, 0.3, 0.1, 16_777_215.0, 3.0]);
    }

    #[test]
    fn a_rounded_change_leaves_fourteen_bits_of_the_value_after_it_and_more_where_it_is_large() {
        let after = |before: f32, change: f32| {
            let mut changes = [change];
            round_changes(&[before], &mut changes);
            (changes[0], before + changes[0])
        };
        // Half a step of 2^-13, ties to even.
        assert_eq!(after(1.0, 2f32.powi(-14)).0, 0.0);
        assert_eq!(after(1.0, 3.0 * 2f32.powi(-14)).0, 2f32.powi(-12));
        // 0.3 after 0.2: exponents -2 and -4, one bit more, so a step of 2^(-2 - 13 - 1).
        let (change, _) = after(0.2, 0.1);
        assert_eq!(change, (0.1f64 * 65536.0).round_ties_even() as f32 / 65536.0);
        // A change far beyond the value after it stays as it is.
        assert_eq!(after(1.0, 0.0015 - 1.0).0, 0.0015 - 1.0);
        for unchanged in [
            (0.0, 1e-39),
            (3.5, -3.5),
            (0.0, f32::MAX),
            (-0.0, -0.0),
            (f32::MAX, f32::NAN),
        ] {
            assert_eq!(after(unchanged.0, unchanged.1).0.to_bits(), unchanged.1.to_bits());
        }
        for (before, to) in heavy(4000, 4).into_iter().zip(heavy(4000, 5)) {
            let (change, value) = after(before, to - before);
            let exact = f64::from(before) + f64::from(to - before);
            let error = (f64::from(before) + f64::from(change) - exact).abs();
            assert!(error <= exact.abs() / f64::from(1 << 14), "{before} to {to}: {value}");
            assert!(value == 0.0 || value.is_sign_negative() == to.is_sign_negative());
        }
    }

    #[test]
    fn a_rounded_model_is_on_a_grid_and_others_are_not() {
        for bits in RANGE {
            assert!(grid(&rounded(&heavy(500, 3), bits)).is_some(), "{bits}");
        }
        assert_eq!(grid(&[0.5, -1.5, 0.0]), Some(0.5));
        assert_eq!(grid(&[6.0, 4.0]), Some(2.0));
        assert_eq!(grid(&[1.0, -0.0]), None);
        assert_eq!(grid(&[0.0, 0.0]), None);
        assert_eq!(grid(&[1e-45, 1.0]), None);
        assert_eq!(grid(&[1e-45]), None, "the step is subnormal");
        assert_eq!(grid(&[1.0, 1048576.0]), Some(1.0));
        assert_eq!(grid(&[1.0, 2_097_152.0]), None);
    }

    #[test]
    fn bits_out_of_range_are_refused() {
        for bits in [0, 3, 21, 255] {
            let why = ModelRounding::try_from(bits).unwrap_err();
            assert!(why.contains(&format!("4 to 20 bits a value, not {bits}")), "{why}");
        }
    }
}
