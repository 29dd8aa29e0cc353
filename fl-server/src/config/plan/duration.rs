//! Durations as people write them: a number and a unit.

use crate::clock::Millis;
use crate::config::plan::error::PlanError;

/// Longest duration: 30 days.
const MAX: Millis = 30 * 24 * 3_600_000;

/// Reads `250ms`, `10s`, `5min` or `1h`, up to 30 days.
///
/// # Errors
/// `Value`, naming `key`.
pub(super) fn parse(key: &'static str, text: &str) -> Result<Millis, PlanError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit: Option<Millis> = match unit.trim_start() {
        "ms" => Some(1),
        "s" => Some(1_000),
        "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let whole = number.parse::<Millis>().ok();
    let millis = whole
        .zip(unit)
        .and_then(|(n, unit)| n.checked_mul(unit))
        .filter(|&millis| millis <= MAX);
    let rule = || "must be a whole number with `ms`, `s`, `min` or `h`, such as \"10s\", at most 720h".to_owned();
    millis.ok_or_else(|| PlanError::Value {
        key,
        value: format!("\"{text}\""),
        rule: rule(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5min", 300_000),
            ("1h", 3_600_000),
            ("0s", 0),
            ("7 s", 7_000),
        ] {
            assert_eq!(parse("k", text), Ok(millis), "{text}");
        }
        for bad in [
            "",
            "10",
            "s",
            "-1s",
            "1.5s",
            "10 parsecs",
            "99999999999999999999s",
            "721h",
            "18446744073709551615h",
        ] {
            let error = parse("cohort.grace", bad).unwrap_err().to_string();
            assert!(error.contains("cohort.grace") && error.contains(bad), "{error}");
        }
    }
}
