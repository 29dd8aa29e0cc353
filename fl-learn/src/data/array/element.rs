//! Types of the numbers in array files, and their conversion.

use half::{bf16, f16};

/// Type of a number in a file. Little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// Each type with its name in npy and in safetensors, and its bytes. numpy has no bf16.
const ELEMENTS: [(Element, &str, &str, usize); 13] = [
    (Element::Bool, "|b1", "BOOL", 1),
    (Element::U8, "|u1", "U8", 1),
    (Element::I8, "|i1", "I8", 1),
    (Element::U16, "<u2", "U16", 2),
    (Element::I16, "<i2", "I16", 2),
    (Element::U32, "<u4", "U32", 4),
    (Element::I32, "<i4", "I32", 4),
    (Element::U64, "<u8", "U64", 8),
    (Element::I64, "<i8", "I64", 8),
    (Element::F16, "<f2", "F16", 2),
    (Element::Bf16, "", "BF16", 2),
    (Element::F32, "<f4", "F32", 4),
    (Element::F64, "<f8", "F64", 8),
];

impl Element {
    /// The type that numpy calls `code`, such as `<f4`.
    pub(crate) fn of_npy(code: &str) -> Option<Self> {
        let code = code.replace("<u1", "|u1").replace("<i1", "|i1");
        let found = ELEMENTS.iter().find(|(_, npy, ..)| !npy.is_empty() && *npy == code);
        found.map(|(element, ..)| *element)
    }

    /// The type that safetensors calls `code`, such as `F32`.
    pub(crate) fn of_safetensors(code: &str) -> Option<Self> {
        let found = ELEMENTS.iter().find(|(_, _, name, _)| *name == code);
        found.map(|(element, ..)| *element)
    }

    fn row(self) -> &'static (Self, &'static str, &'static str, usize) {
        // Every variant has a row, which a test checks; `F32` is never taken in its place.
        ELEMENTS.iter().find(|row| row.0 == self).unwrap_or(&ELEMENTS[11])
    }

    /// Its name for a reader, such as `F32`.
    pub(crate) fn name(self) -> &'static str {
        self.row().2
    }

    pub(crate) fn bytes(self) -> usize {
        self.row().3
    }

    /// Whether numbers of this type are integers, or Booleans.
    pub(crate) fn is_integer(self) -> bool {
        !matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Appends the numbers in `bytes` as f32, each rounded to the nearest; numbers beyond its range become infinite.
    pub(crate) fn append_f32(self, bytes: &[u8], out: &mut Vec<f32>) {
        match self {
            Self::Bool | Self::U8 => out.extend(bytes.iter().map(|&b| f32::from(b))),
            Self::I8 => out.extend(bytes.iter().map(|&b| f32::from(b.cast_signed()))),
            Self::U16 => out.extend(numbers(bytes).map(|b| f32::from(u16::from_le_bytes(b)))),
            Self::I16 => out.extend(numbers(bytes).map(|b| f32::from(i16::from_le_bytes(b)))),
            Self::U32 => out.extend(numbers(bytes).map(|b| u32::from_le_bytes(b) as f32)),
            Self::I32 => out.extend(numbers(bytes).map(|b| i32::from_le_bytes(b) as f32)),
            Self::U64 => out.extend(numbers(bytes).map(|b| u64::from_le_bytes(b) as f32)),
            Self::I64 => out.extend(numbers(bytes).map(|b| i64::from_le_bytes(b) as f32)),
            Self::F16 => out.extend(numbers(bytes).map(|b| f16::from_le_bytes(b).to_f32())),
            Self::Bf16 => out.extend(numbers(bytes).map(|b| bf16::from_le_bytes(b).to_f32())),
            Self::F32 => out.extend(numbers(bytes).map(f32::from_le_bytes)),
            Self::F64 => out.extend(numbers(bytes).map(|b| f64::from_le_bytes(b) as f32)),
        }
    }

    /// Appends the integers in `bytes`. Nothing if the type is not an integer.
    pub(crate) fn append_integers(self, bytes: &[u8], out: &mut Vec<i128>) {
        match self {
            Self::Bool | Self::U8 => out.extend(bytes.iter().map(|&b| i128::from(b))),
            Self::I8 => out.extend(bytes.iter().map(|&b| i128::from(b.cast_signed()))),
            Self::U16 => out.extend(numbers(bytes).map(|b| i128::from(u16::from_le_bytes(b)))),
            Self::I16 => out.extend(numbers(bytes).map(|b| i128::from(i16::from_le_bytes(b)))),
            Self::U32 => out.extend(numbers(bytes).map(|b| i128::from(u32::from_le_bytes(b)))),
            Self::I32 => out.extend(numbers(bytes).map(|b| i128::from(i32::from_le_bytes(b)))),
            Self::U64 => out.extend(numbers(bytes).map(|b| i128::from(u64::from_le_bytes(b)))),
            Self::I64 => out.extend(numbers(bytes).map(|b| i128::from(i64::from_le_bytes(b)))),
            Self::F16 | Self::Bf16 | Self::F32 | Self::F64 => {}
        }
    }
}

/// The bytes of each number; bytes after the last whole number are ignored.
fn numbers<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_names_and_converts_its_own_bytes() {
        for (element, npy, safetensors, bytes) in ELEMENTS {
            assert_eq!(*element.row(), (element, npy, safetensors, bytes));
            assert_eq!(Element::of_npy(npy), (!npy.is_empty()).then_some(element));
            assert_eq!(Element::of_safetensors(safetensors), Some(element));
            let (mut floats, mut integers) = (Vec::new(), Vec::new());
            element.append_f32(&vec![0; 3 * bytes], &mut floats);
            element.append_integers(&vec![0; 3 * bytes], &mut integers);
            assert_eq!(floats, [0.0; 3], "{element:?}");
            assert_eq!(integers.len(), if element.is_integer() { 3 } else { 0 }, "{element:?}");
        }
        assert_eq!(Element::of_npy("<u1"), Some(Element::U8));
        assert_eq!(Element::of_npy(">f4"), None);
    }

    #[test]
    fn numbers_keep_their_sign_and_value() {
        let f32_of = |element: Element, bytes: &[u8]| {
            let mut out = Vec::new();
            element.append_f32(bytes, &mut out);
            out[0]
        };
        let integer = |element: Element, bytes: &[u8]| {
            let mut out = Vec::new();
            element.append_integers(bytes, &mut out);
            out[0]
        };
        assert_eq!(f32_of(Element::I8, &[0xfe]), -2.0);
        assert_eq!(f32_of(Element::I16, &(-300i16).to_le_bytes()), -300.0);
        assert_eq!(f32_of(Element::F16, &f16::from_f32(1.5).to_le_bytes()), 1.5);
        assert_eq!(f32_of(Element::Bf16, &bf16::from_f32(-0.25).to_le_bytes()), -0.25);
        assert_eq!(f32_of(Element::F64, &0.1f64.to_le_bytes()), 0.1f32);
        assert!(f32_of(Element::F64, &1e300f64.to_le_bytes()).is_infinite());
        assert_eq!(integer(Element::I64, &i64::MIN.to_le_bytes()), i128::from(i64::MIN));
        assert_eq!(integer(Element::U64, &u64::MAX.to_le_bytes()), i128::from(u64::MAX));
        assert_eq!(integer(Element::I32, &(-7i32).to_le_bytes()), -7);
    }
}
