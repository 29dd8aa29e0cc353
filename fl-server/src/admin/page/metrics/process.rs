//! The usual metrics of a process, from proc(5) where it exists.

use prometheus_client::registry::Unit;

use super::registry::{Metrics, any, one};
use crate::clock::Millis;

#[derive(Debug, Clone, Default)]
pub(crate) struct Process {
    /// When serving began, since 1970.
    pub(crate) since: Millis,
    processor_seconds: Option<f64>,
    resident: Option<u64>,
    files: Option<usize>,
}

/// Clock ticks in a second: on Linux the same on every machine.
const TICKS: f64 = 100.0;

impl Process {
    pub(crate) fn now(since: Millis) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
        let files = std::fs::read_dir("/proc/self/fd").ok();
        Self {
            since,
            processor_seconds: read("stat").and_then(|text| processor_seconds(&text)),
            resident: read("status").and_then(|text| resident(&text)),
            files: files.map(Iterator::count),
        }
    }

    /// With every field set.
    #[cfg(test)]
    pub(super) fn sample() -> Self {
        Self {
            since: 1_500,
            processor_seconds: Some(2.0),
            resident: Some(4_096),
            files: Some(8),
        }
    }

    pub(super) fn write(&self, metrics: &mut Metrics) {
        let seconds = Some(Unit::Seconds);
        let since = one(self.since as f64 / 1000.0);
        metrics.gauges(
            "process_start_time",
            "When serving began, since 1970",
            seconds.clone(),
            since,
        );
        let processor = any(self.processor_seconds);
        metrics.counters("process_cpu", "Processor time used", seconds, processor);
        let resident = any(self.resident.map(|bytes| bytes as f64));
        metrics.gauges("process_resident_memory", "Memory in use", Some(Unit::Bytes), resident);
        let files = any(self.files.map(|files| files as f64));
        metrics.gauges("process_open_fds", "Open files and connections", None, files);
    }
}

/// User and system time of `/proc/self/stat`, whose second field may hold anything between its parentheses.
fn processor_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields
        .split_whitespace()
        .skip(11)
        .map_while(|ticks| ticks.parse::<f64>().ok());
    Some((ticks.next()? + ticks.next()?) / TICKS)
}

/// Bytes, of `/proc/self/status`.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read_and_nonsense_is_nothing() {
        let stat = "1 (fl ) server) S 1 1 1 0 -1 4 5 0 0 0 250 50 0 0 20 0";
        assert_eq!(processor_seconds(stat), Some(3.0));
        assert_eq!(resident("VmPeak:\t  9 kB\nVmRSS:\t     12 kB\n"), Some(12_288));
        assert_eq!((processor_seconds("1 (a) S 1"), resident("VmRSS: x kB")), (None, None));
    }
}
