//! Hexadecimal digits.

use std::fmt::Write as _;

/// Formats bytes as lower-case digits, with `between` after each byte but the last.
pub(super) fn hex(bytes: &[u8], between: &str) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let _ = write!(text, "{}{byte:02x}", if at == 0 { "" } else { between });
    }
    text
}

/// Reads lower-case digits; `None` for anything else.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect()).flatten()
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        assert_eq!(unhex(&hex(&[0, 17, 255], "")), Some(vec![0, 17, 255]));
        for bad in ["0", "0g", "AB", "é"] {
            assert_eq!(unhex(bad), None);
        }
    }
}
