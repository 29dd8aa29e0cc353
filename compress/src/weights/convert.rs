//! Converts values between the `f32` of a flat vector and the bytes of their own type.

use crate::layout::Dtype;

// Largest magnitude of an integer in a flat vector: `f32` holds every integer up to here. Larger ones saturate.
const MAX_INTEGER: f32 = 16_777_216.0;

/// Reads little-endian values of `dtype`. A double beyond the range of `f32` becomes infinite. Shapes:
/// `bytes: [out.len() * dtype.width()]`.
pub(crate) fn read(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::F32 => each(bytes, out, f32::from_le_bytes),
        Dtype::F16 => each(bytes, out, |b| half::f16::from_le_bytes(b).to_f32()),
        Dtype::Bf16 => each(bytes, out, |b| half::bf16::from_le_bytes(b).to_f32()),
        Dtype::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        _ => {
            let stored = bytes.chunks_exact(dtype.width());
            out.iter_mut()
                .zip(stored)
                .for_each(|(out, bytes)| *out = number(dtype, bytes));
        }
    }
}

/// An integer, saturated to those that a flat vector can hold.
fn number(dtype: Dtype, bytes: &[u8]) -> f32 {
    let signed = matches!(dtype, Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::I8);
    let negative = signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut word = [if negative { 0xff } else { 0 }; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let value = if signed {
        i64::from_le_bytes(word).clamp(-(MAX_INTEGER as i64), MAX_INTEGER as i64) as f32
    } else {
        u64::from_le_bytes(word).min(MAX_INTEGER as u64) as f32
    };
    integer(dtype, value)
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let values = out.iter_mut().zip(bytes.as_chunks().0);
    values.for_each(|(out, bytes)| *out = value(*bytes));
}

/// Writes values as little-endian values of `dtype`, rounded as by [`round`]. Shapes:
/// `out: [values.len() * dtype.width()]`.
pub(crate) fn write(dtype: Dtype, values: &[f32], out: &mut [u8]) {
    match dtype {
        Dtype::F32 => put(values, out, f32::to_le_bytes),
        Dtype::F16 => put(values, out, |v| f16(v).to_le_bytes()),
        Dtype::Bf16 => put(values, out, |v| bf16(v).to_le_bytes()),
        Dtype::F64 => put(values, out, |v| f64::from(v).to_le_bytes()),
        _ => {
            let stored = out.chunks_exact_mut(dtype.width());
            stored.zip(values).for_each(|(out, &value)| {
                // The integers of all types, as a flat vector has them, fit.
                let word = (integer(dtype, value) as i64).to_le_bytes();
                out.copy_from_slice(&word[..out.len()]);
            });
        }
    }
}

fn put<const N: usize>(values: &[f32], out: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    let places = out.as_chunks_mut().0.iter_mut();
    places.zip(values).for_each(|(out, &value)| *out = bytes(value));
}

/// Replaces values by the nearest ones that `dtype` can represent, ties to even; values beyond its range by its largest
/// finite ones.
pub(crate) fn round(dtype: Dtype, values: &mut [f32]) {
    if matches!(dtype, Dtype::F32 | Dtype::F64) {
        return;
    }
    for value in values {
        *value = match dtype {
            Dtype::F16 => f16(*value).to_f32(),
            Dtype::Bf16 => bf16(*value).to_f32(),
            _ => integer(dtype, *value),
        };
    }
}

fn f16(value: f32) -> half::f16 {
    let most = half::f16::MAX.to_f32();
    half::f16::from_f32(value.clamp(-most, most))
}

fn bf16(value: f32) -> half::bf16 {
    let most = half::bf16::MAX.to_f32();
    half::bf16::from_f32(value.clamp(-most, most))
}

/// The nearest integer of `dtype` that a flat vector can hold.
fn integer(dtype: Dtype, value: f32) -> f32 {
    let (least, most) = match dtype {
        Dtype::Bool => (0.0, 1.0),
        Dtype::U8 => (0.0, 255.0),
        Dtype::I8 => (-128.0, 127.0),
        Dtype::U16 => (0.0, 65_535.0),
        Dtype::I16 => (-32_768.0, 32_767.0),
        Dtype::U32 | Dtype::U64 => (0.0, MAX_INTEGER),
        _ => (-MAX_INTEGER, MAX_INTEGER),
    };
    value.round_ties_even().clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_what_writing_and_reading_gives() {
        let values = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            254.5,
            255.5,
            300.0,
            1e-8,
            65519.0,
            65520.0,
            -7e4,
            0.1,
            3.4e38,
            -3.4e38,
            1.0009766,
            16_777_216.0,
            2e7,
            -2e7,
            1e-45,
        ];
        for dtype in Dtype::ALL {
            let mut bytes = vec![0; values.len() * dtype.width()];
            write(dtype, &values, &mut bytes);
            let mut back = [f32::NAN; 22];
            read(dtype, &bytes, &mut back);
            let mut rounded = values;
            round(dtype, &mut rounded);
            assert_eq!(back, rounded, "{dtype:?}");
            assert!(rounded.iter().all(|value| value.is_finite()), "{dtype:?}");
            let mut again = rounded;
            round(dtype, &mut again);
            assert_eq!(again, rounded, "{dtype:?}: rounding is idempotent");
        }
    }

    #[test]
    fn halves_are_rounded_to_even_and_large_values_saturate() {
        let rounded = |dtype, value: f32| {
            let mut values = [value];
            round(dtype, &mut values);
            values[0]
        };
        // The halves between neighbors of f16 and of bf16.
        assert_eq!(rounded(Dtype::F16, 2049.0), 2048.0);
        assert_eq!(rounded(Dtype::F16, 2051.0), 2052.0);
        assert_eq!(rounded(Dtype::Bf16, 257.0), 256.0);
        assert_eq!(rounded(Dtype::Bf16, 259.0), 260.0);
        assert_eq!(rounded(Dtype::F16, 1e9), 65504.0);
        assert_eq!(rounded(Dtype::I64, 2.5), 2.0);
        assert_eq!((rounded(Dtype::U8, -3.0), rounded(Dtype::U8, 999.0)), (0.0, 255.0));
        assert_eq!((rounded(Dtype::Bool, 0.5), rounded(Dtype::Bool, 7.0)), (0.0, 1.0));
    }

    #[test]
    fn integers_that_f32_cannot_hold_saturate() {
        for (value, expected) in [
            (3, 3.0),
            (-5, -5.0),
            (i64::MAX, 16_777_216.0),
            (i64::MIN, -16_777_216.0),
        ] {
            let mut out = [0.0];
            read(Dtype::I64, &value.to_le_bytes(), &mut out);
            assert_eq!(out, [expected]);
        }
        let mut out = [0.0];
        read(Dtype::I32, &i32::MIN.to_le_bytes(), &mut out);
        assert_eq!(out, [-16_777_216.0]);
    }
}
