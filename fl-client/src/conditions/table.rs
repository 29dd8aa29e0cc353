//! `[when]` of client.toml, as written.

use std::path::Path;
use std::time::Duration;

use fl_compress::duration::millis;
use fl_compress::size;
use serde::Deserialize;
use toml::Value;

use super::hours::Hours;
use super::surroundings::Surroundings;
use super::when::When;

/// Shortest and longest `every`, in milliseconds.
const EVERY: (u64, u64) = (1_000, 3_600_000);
/// Longest `settle` and `max_pause`: a day, in milliseconds.
const LONGEST: u64 = 24 * 3_600_000;

/// The table as written. Keys with a default may be left out.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WhenTable {
    on_mains: bool,
    battery_above: Option<f64>,
    unmetered: bool,
    idle_load_below: Option<f64>,
    free_memory_above: Option<Value>,
    temperature_below: Option<f64>,
    hours: Option<Value>,
    command: Option<Vec<String>>,
    strict: bool,
    every: Option<Value>,
    settle: Option<Value>,
    max_pause: Option<Value>,
}

impl WhenTable {
    /// The checked table of a client.toml in `folder`.
    pub(crate) fn checked(self, folder: &Path) -> Result<When, String> {
        let default = When::default();
        within("battery_above", self.battery_above, 0.0, 99.0, "percent")?;
        within(
            "idle_load_below",
            self.idle_load_below,
            0.01,
            1000.0,
            "load for each processor, such as 0.3",
        )?;
        within(
            "temperature_below",
            self.temperature_below,
            0.0,
            150.0,
            "degrees Celsius, such as 70",
        )?;
        let command = self.command.unwrap_or_default();
        if command.first().is_some_and(|program| program.is_empty()) {
            return Err("`when.command`: names no program".to_owned());
        }
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        Ok(When {
            on_mains: self.on_mains,
            battery_above: self.battery_above,
            unmetered: self.unmetered,
            idle_load_below: self.idle_load_below,
            free_memory_above: self.free_memory_above.as_ref().map(bytes).transpose()?,
            temperature_below: self.temperature_below,
            hours: self.hours.as_ref().map(hours).transpose()?,
            command,
            strict: self.strict,
            every: duration("every", self.every.as_ref(), EVERY, default.every)?,
            settle: duration("settle", self.settle.as_ref(), (0, LONGEST), default.settle)?,
            max_pause: duration("max_pause", self.max_pause.as_ref(), (0, LONGEST), default.max_pause)?,
            surroundings: Surroundings {
                folder: folder.to_owned(),
                ..default.surroundings
            },
        })
    }
}

fn within(key: &str, given: Option<f64>, least: f64, most: f64, unit: &str) -> Result<(), String> {
    match given.filter(|value| !(least..=most).contains(value)) {
        None => Ok(()),
        Some(value) => Err(format!("`when.{key}` is {value}, but must be {least} to {most} {unit}")),
    }
}

fn bytes(given: &Value) -> Result<u64, String> {
    given.as_str().and_then(size::bytes).ok_or_else(|| {
        format!(
            "`when.free_memory_above` is {given}, but must be a size {}, such as \"500MiB\"",
            size::SIZES
        )
    })
}

/// One window or a list of them.
fn hours(given: &Value) -> Result<Hours, String> {
    let wrong = || format!("`when.hours` is {given}, but must be \"22:00-06:00\" or a list of such windows");
    let windows = match given {
        Value::String(window) => vec![window.clone()],
        Value::Array(windows) => windows
            .iter()
            .map(|value| value.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    Hours::parse(&windows).map_err(|why| why.replacen("`hours`", "`when.hours`", 1))
}

fn duration(
    key: &str,
    given: Option<&Value>,
    (least, most): (u64, u64),
    default: Duration,
) -> Result<Duration, String> {
    let Some(given) = given else { return Ok(default) };
    let value = given
        .as_str()
        .and_then(millis)
        .filter(|value| (least..=most).contains(value));
    value.map(Duration::from_millis).ok_or_else(|| {
        let least = least / 1000;
        let most = most / 3_600_000;
        format!("`when.{key}` is {given}, but must be a duration of {least}s to {most}h, such as \"1min\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<When, String> {
        let table: WhenTable = toml::from_str(text).map_err(|e| e.to_string())?;
        table.checked(Path::new("device"))
    }

    #[test]
    fn every_key_is_read() {
        let when = checked(
            "on_mains = true\nbattery_above = 40\nunmetered = true\nidle_load_below = 0.3\nfree_memory_above = '500MiB'\n\
             temperature_below = 70.5\nhours = ['22:00-06:00', '12:00-13:00']\ncommand = ['./may-i.sh', 'now']\nstrict = true\n\
             every = '5s'\nsettle = '0s'\nmax_pause = '2min'",
        )
        .unwrap();
        assert!(when.on_mains && when.unmetered && when.strict && when.hours.is_some());
        assert_eq!((when.battery_above, when.idle_load_below), (Some(40.0), Some(0.3)));
        assert_eq!(
            (when.free_memory_above, when.temperature_below),
            (Some(500 << 20), Some(70.5))
        );
        assert_eq!(when.command, ["./may-i.sh", "now"]);
        assert_eq!(
            [when.every, when.settle, when.max_pause].map(|wait| wait.as_secs()),
            [5, 0, 120]
        );
        assert_eq!(when.surroundings.folder, Path::new("device"));
        assert!(checked("").unwrap().hours.is_none());
        assert!(checked("hours = '22:00-06:00'").unwrap().hours.is_some());
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (text, named) in [
            ("on_main = true", "on_main"),
            (
                "battery_above = 100",
                "`when.battery_above` is 100, but must be 0 to 99 percent",
            ),
            ("battery_above = nan", "`when.battery_above`"),
            ("idle_load_below = 0", "`when.idle_load_below`"),
            ("temperature_below = -5", "`when.temperature_below`"),
            (
                "free_memory_above = 500",
                "`when.free_memory_above` is 500, but must be a size",
            ),
            ("free_memory_above = '500 MBit'", "such as \"500MiB\""),
            ("hours = '22:00-22:00'", "`when.hours`: \"22:00-22:00\" never comes"),
            ("hours = []", "`when.hours` has no window and never comes"),
            ("hours = 22", "`when.hours` is 22"),
            ("hours = ['22:00-06:00', 6]", "`when.hours` is ["),
            ("command = ['']", "`when.command`: names no program"),
            (
                "every = '10ms'",
                "`when.every` is \"10ms\", but must be a duration of 1s to 1h",
            ),
            ("settle = 30", "`when.settle` is 30"),
            ("max_pause = '25h'", "`when.max_pause`"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
