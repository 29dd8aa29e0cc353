//! How many bytes a frame may take, as asked.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Most bytes of a frame: `"200KiB"`, `"1500 B"`, or `"0.25 bits"` for each value of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Budget {
    /// Bytes in all.
    Bytes(u64),
    /// Bits for each value, but at least what headers and tensors take whose codec has nothing to choose.
    Bits(f64),
}

const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

impl Budget {
    /// Most bytes of a frame for `len` values.
    pub fn bytes(self, len: usize) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Bits(bits) => (bits * len as f64 / 8.0) as u64,
        }
    }
}

impl FromStr for Budget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refusal = || {
            Error::Usage(format!(
                r#"a budget is "200KiB", "1.5 MB" or "0.25 bits" for each value, above zero, not "{text}""#
            ))
        };
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(refusal)?;
        let (number, unit) = (&text[..digits], text[digits..].trim());
        let number: f64 = number.parse().map_err(|_| refusal())?;
        if unit == "bits" || unit == "bit" {
            return (number > 0.0 && number <= 64.0)
                .then_some(Self::Bits(number))
                .ok_or_else(refusal);
        }
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refusal)?;
        let bytes = number * *size as f64;
        (bytes >= 1.0 && bytes < 9e15)
            .then_some(Self::Bytes(bytes as u64))
            .ok_or_else(refusal)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bits(bits) => write!(f, "{bits} bits"),
            Self::Bytes(bytes) => {
                let unit = UNITS[..3].iter().rev().find(|(_, size)| bytes % size == 0 && bytes > 0);
                let (name, size) = unit.unwrap_or(&UNITS[6]);
                write!(f, "{}{name}", bytes / size)
            }
        }
    }
}

impl TryFrom<String> for Budget {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Budget> for String {
    fn from(budget: Budget) -> Self {
        budget.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_bytes_or_bits_for_each_value() {
        for (text, bytes) in [
            ("200KiB", 204_800),
            ("200 KiB", 204_800),
            ("1.5 MB", 1_500_000),
            ("17B", 17),
            ("0.1 bits", 12_500),
            ("1 bit", 125_000),
        ] {
            let budget: Budget = text.parse().unwrap();
            assert_eq!(budget.bytes(1_000_000), bytes, "{text}");
            assert_eq!(budget.to_string().parse(), Ok(budget), "{text}");
        }
        for text in [
            "", "200", "KiB", "-1 bits", "0 bits", "1e3 B", "3 apples", "0B", "nan bits", "99 bits",
        ] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}
