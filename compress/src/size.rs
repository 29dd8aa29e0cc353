//! Sizes and speeds as text, in budgets and configurations: a number and a unit.

// Just below 2^53, up to which a double, into which sizes are parsed, holds every integer.
const MOST: f64 = 9e15;
/// Sizes in bytes, in words.
pub const SIZES: &str = "from 1B to 9000000GB, in B, kB, MB, GB, KiB, MiB or GiB";
pub(crate) const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];
const SPEEDS: [(&str, u64); 4] = [
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("kbit/s", 1_000),
    ("bit/s", 1),
];

/// Reads `200KiB` or `1.5 MB` as bytes, at least 1 and at most 9e15. `None` for any other text.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim();
    let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let bytes = number * *size as f64;
    (1.0..=MOST).contains(&bytes).then_some(bytes as u64)
}

/// Reads `10Mbit/s` as bits a second. `None` for any other text, for less than one bit a second and for more than 10^15.
pub fn bits_a_second(text: &str) -> Option<u64> {
    let (number, unit) = SPEEDS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let rate = number.trim().parse::<f64>().ok()? * *unit as f64;
    (1.0..=1e15).contains(&rate).then_some(rate as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_have_a_number_and_a_unit() {
        for (text, expected) in [("1Mbit/s", 1_000_000), ("0.5 kbit/s", 500), ("64bit/s", 64)] {
            assert_eq!(bits_a_second(text), Some(expected), "{text}");
        }
        for bad in ["", "1MB/s", "Mbit/s", "0bit/s", "-1Mbit/s", "nanbit/s", "2000000Gbit/s"] {
            assert_eq!(bits_a_second(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_have_a_number_and_a_unit() {
        for (text, expected) in [
            ("1B", 1),
            ("200KiB", 204_800),
            ("1.5 MB", 1_500_000),
            ("9000000GB", 9_000_000_000_000_000),
        ] {
            assert_eq!(bytes(text), Some(expected), "{text}");
        }
        for bad in [
            "",
            "12",
            "KiB",
            "0B",
            "-1B",
            "1.2.3B",
            "1 mib",
            "9000001GB",
            "1e3B",
            "１B",
        ] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
