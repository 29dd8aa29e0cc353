//! `[limits]` of client.toml: as written, and checked.

use std::sync::Arc;

use fl_compress::size;
use fl_proto::{Pace, Paces};
use serde::Deserialize;
use toml::Value;

use crate::state::DEFAULT_RUNS;

/// Most processors and lowest priority.
const MAX_CPUS: i64 = 4096;
const MAX_NICE: i64 = 19;
/// Most earlier runs: each is a folder that is read when a run is joined.
const MAX_RUNS: i64 = 10_000;

/// What a client may take from its device. By default only the earlier runs have a limit.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Rates of the client's connections.
    pub paces: Paces,
    /// Bytes on the sockets, both directions, in a day of local time.
    pub per_day: Option<u64>,
    /// Bytes on the sockets in a month of local time.
    pub per_month: Option<u64>,
    /// Bytes of memory: a run that needs more is not taken part in.
    pub memory: Option<u64>,
    /// Bytes of the state folder: a run that needs more is not taken part in, and earlier ones give way.
    pub disk: Option<u64>,
    /// Earlier runs whose state is kept.
    pub runs: usize,
    /// Processors for the whole process and its trainers.
    pub cpus: Option<usize>,
    /// What is added to the nice value of the process and its trainers, 0 to 19.
    pub nice: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            paces: Paces::default(),
            per_day: None,
            per_month: None,
            memory: None,
            disk: None,
            runs: DEFAULT_RUNS,
            cpus: None,
            nice: 0,
        }
    }
}

/// The table as written. Keys may be left out.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsTable {
    upload: Option<Value>,
    download: Option<Value>,
    per_day: Option<Value>,
    per_month: Option<Value>,
    memory: Option<Value>,
    disk: Option<Value>,
    runs: Option<Value>,
    cpus: Option<Value>,
    nice: Option<Value>,
}

impl LimitsTable {
    pub(crate) fn checked(&self) -> Result<Limits, String> {
        let cpus = whole("cpus", self.cpus.as_ref(), 1, MAX_CPUS)?;
        let nice = whole("nice", self.nice.as_ref(), 0, MAX_NICE)?;
        let runs = whole("runs", self.runs.as_ref(), 0, MAX_RUNS)?;
        Ok(Limits {
            runs: runs.and_then(|runs| usize::try_from(runs).ok()).unwrap_or(DEFAULT_RUNS),
            paces: Paces {
                up: pace("upload", self.upload.as_ref())?,
                down: pace("download", self.download.as_ref())?,
            },
            per_day: bytes("per_day", self.per_day.as_ref())?,
            per_month: bytes("per_month", self.per_month.as_ref())?,
            memory: bytes("memory", self.memory.as_ref())?,
            disk: bytes("disk", self.disk.as_ref())?,
            cpus: cpus.and_then(|cpus| usize::try_from(cpus).ok()),
            nice: nice.and_then(|nice| u8::try_from(nice).ok()).unwrap_or(0),
        })
    }
}

fn pace(key: &str, given: Option<&Value>) -> Result<Option<Arc<Pace>>, String> {
    let Some(given) = given else { return Ok(None) };
    let bytes = given.as_str().and_then(size::bits_a_second).map(|bits| bits / 8);
    match bytes.filter(|bytes| *bytes >= Pace::LEAST_RATE) {
        Some(bytes) => Ok(Some(Arc::new(Pace::new(bytes)))),
        None => Err(format!(
            "`limits.{key}` is {given}, but must be a speed of 64kbit/s or more, such as \"1Mbit/s\": below, connections time out"
        )),
    }
}

fn bytes(key: &str, given: Option<&Value>) -> Result<Option<u64>, String> {
    let Some(given) = given else { return Ok(None) };
    let value = given.as_str().and_then(size::bytes);
    value.map(Some).ok_or_else(|| {
        format!(
            "`limits.{key}` is {given}, but must be a size {}, such as \"200MiB\"",
            size::SIZES
        )
    })
}

fn whole(key: &str, given: Option<&Value>, least: i64, most: i64) -> Result<Option<i64>, String> {
    let Some(given) = given else { return Ok(None) };
    let value = given.as_integer().filter(|value| (least..=most).contains(value));
    value
        .map(Some)
        .ok_or_else(|| format!("`limits.{key}` is {given}, but must be a whole number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Limits, String> {
        let table: LimitsTable = toml::from_str(text).map_err(|e| e.to_string())?;
        table.checked()
    }

    #[test]
    fn every_key_is_read() {
        let limits = checked(
            "upload = '1Mbit/s'\ndownload = '64 kbit/s'\nper_day = '200MiB'\nper_month = '1GB'\nmemory = '2GiB'\n\
             disk = '500MB'\ncpus = 2\nnice = 19",
        )
        .unwrap();
        let rate = |pace: Option<Arc<Pace>>| pace.unwrap().rate();
        assert_eq!((rate(limits.paces.up), rate(limits.paces.down)), (125_000, 8_000));
        assert_eq!(
            (limits.per_day, limits.per_month),
            (Some(200 << 20), Some(1_000_000_000))
        );
        assert_eq!((limits.memory, limits.disk), (Some(2 << 30), Some(500_000_000)));
        assert_eq!((limits.cpus, limits.nice), (Some(2), 19));
        let none = checked("").unwrap();
        assert!(none.paces.up.is_none() && none.paces.down.is_none());
        assert_eq!((none.cpus, none.nice), (None, 0));
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        for (text, named) in [
            ("uplaod = '1Mbit/s'", "uplaod"),
            (
                "upload = '1MB/s'",
                "`limits.upload` is \"1MB/s\", but must be a speed of 64kbit/s or more",
            ),
            ("upload = 125000", "`limits.upload` is 125000"),
            ("download = '63kbit/s'", "`limits.download`"),
            ("per_day = 200", "`limits.per_day` is 200, but must be a size from 1B"),
            ("per_month = '5 GBit'", "`limits.per_month`"),
            ("memory = '0B'", "`limits.memory`"),
            ("disk = '-1MiB'", "such as \"200MiB\""),
            ("download = '0Mbit/s'", "`limits.download`"),
            (
                "cpus = 0",
                "`limits.cpus` is 0, but must be a whole number from 1 to 4096",
            ),
            ("cpus = 1.5", "`limits.cpus` is 1.5"),
            (
                "nice = -5",
                "`limits.nice` is -5, but must be a whole number from 0 to 19",
            ),
            ("nice = 20", "`limits.nice`"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
