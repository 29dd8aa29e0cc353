//! Durations as text, in budgets and configurations: a whole number and a unit.

/// Reads `250ms`, `10s`, `5min` or `1h` as milliseconds. `None` for any other text, and for a duration that overflows.
pub fn millis(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim_start() {
        "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, expected) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5min", 300_000),
            ("1h", 3_600_000),
            ("0s", 0),
            ("7 s", 7_000),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        for bad in [
            "",
            "10",
            "s",
            "-1s",
            "1.5s",
            "10 parsecs",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }
}
