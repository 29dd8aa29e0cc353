//! Numbers and names for a person.

use crate::table::column::{Column, Value};

/// Formats bytes with three digits and a unit of 1024.
pub(crate) fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024.0 {
        return format!("{bytes:.0} B");
    }
    let mut value = bytes / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let after = places(value);
    format!("{value:.after$} {}", UNITS[unit])
}

/// Formats a number from zero on with three digits, or with all digits before the point.
pub(crate) fn digits(value: f64) -> String {
    let after = places(value);
    format!("{value:.after$}")
}

fn places(value: f64) -> usize {
    match value {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    }
}

/// Formats seconds: two decimals below 100, one from there on.
pub(crate) fn seconds(value: f64) -> String {
    let after = if value < 100.0 { 2 } else { 1 };
    format!("{value:.after$}")
}

/// Formats a duration in seconds, minutes, hours or days.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{} s", digits(seconds)),
        ..7200.0 => format!("{} min", digits(seconds / 60.0)),
        ..172_800.0 => format!("{} h", digits(seconds / 3600.0)),
        _ => format!("{} days", digits(seconds / 86_400.0)),
    }
}

/// Formats a time in UTC to the second.
pub(crate) fn moment(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).ok();
    let Some(at) = seconds.and_then(|at| time::OffsetDateTime::from_unix_timestamp(at).ok()) else {
        return format!("{unix_ms} ms after 1970");
    };
    let (hour, minute, second) = at.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", at.date())
}

/// Formats a share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Formats an integer with thousands separators.
pub(crate) fn count(number: u64) -> String {
    let plain = number.to_string();
    let mut out = String::with_capacity(plain.len() * 4 / 3);
    for (place, digit) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Longest name that a table shows, in characters.
const NAME_CHARS: usize = 48;

/// Escapes the characters of a text from outside that move the cursor or change the direction of writing.
pub(crate) fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| {
            let turns =
                matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
            if c.is_control() || turns {
                c.escape_default().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}

/// Formats a name from outside: as [`escaped`], with the middle of a long name cut out.
pub(crate) fn name(name: &str) -> String {
    let plain = escaped(name);
    let len = plain.chars().count();
    if len <= NAME_CHARS {
        return plain;
    }
    let head = NAME_CHARS / 2;
    let tail = NAME_CHARS - head - 2;
    let start: String = plain.chars().take(head).collect();
    let end: String = plain.chars().skip(len - tail).collect();
    format!("{start}..{end}")
}

/// Formats a sum of money or energy with four significant digits.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let place = value.abs().log10().floor();
    let after = (3.0 - place).clamp(0.0, 12.0) as usize;
    format!("{value:.after$}")
}

/// A missing number.
pub(crate) const MISSING: &str = "-";

/// Formats one value of a column.
pub(crate) fn cell(column: &Column, row: usize) -> String {
    match column.values.at(row) {
        Value::Missing => MISSING.to_owned(),
        Value::Integer(bytes) if column.unit == "B" => size(bytes as f64),
        Value::Integer(value) => value.to_string(),
        Value::Number(value) => quantity(column, value),
        Value::Flag(flag) => (if flag { "yes" } else { "no" }).to_owned(),
        // Sentences of this program are shown whole.
        Value::Text(text) if matches!(&*column.name, "why" | "change") => text.to_owned(),
        Value::Text(text) => name(text),
    }
}

fn quantity(column: &Column, value: f64) -> String {
    let is_share =
        |name: &str| matches!(name, "share" | "left_out") || name.starts_with("density") || name.starts_with("kept");
    match column.unit {
        "B" => size(value),
        "s" => seconds(value),
        "bit" => format!("{value:.3}"),
        "round" => format!("{value:.0}"),
        "money" | "kWh" | "g" => short(value),
        _ if is_share(&column.name) => percent(value),
        _ if column.name.starts_with("age") => format!("{value:.1}"),
        _ if column.name.starts_with("ratio") || column.name == "times" => digits(value),
        _ if column.name.ends_with("perplexity") || column.name.contains('/') => figure(value),
        // Losses have any size.
        _ if value.abs() >= 1e9 => format!("{value:.3e}"),
        _ => format!("{value:.4}"),
    }
}

/// Formats a figure of unknown size.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e-4..1e9 => short(value),
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (1023.0, "1023 B"),
            (1024.0, "1.00 KiB"),
            (15.0 * 1024.0, "15.0 KiB"),
            (999.0 * 1024.0, "999 KiB"),
            (1000.0 * 1024.0, "0.98 MiB"),
            (u64::MAX as f64, "16384 PiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn figures_have_four_digits_of_any_size() {
        for (value, text) in [
            (0.0, "0"),
            (0.93, "0.9300"),
            (-12.345, "-12.35"),
            (54_321.6, "54322"),
            (1e-9, "1.000e-9"),
            (f64::MAX, "1.798e308"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn moments_are_dates_and_one_beyond_all_dates_is_still_said() {
        assert_eq!(moment(1_700_000_000_123), "2023-11-14 22:13:20 UTC");
        assert_eq!(moment(u64::MAX), "18446744073709551615 ms after 1970");
    }

    #[test]
    fn names_cannot_move_the_cursor_or_push_a_table_apart() {
        assert_eq!(name("anna, \"b\"\n\u{1b}[2J"), "anna, \"b\"\\n\\u{1b}[2J");
        assert_eq!(name("a\u{202e}b"), "a\\u{202e}b");
        let long = name(&format!("{}z", "a".repeat(200)));
        assert_eq!(long.len(), 48);
        assert!(long.starts_with("aaa") && long.ends_with("az"));
    }
}
