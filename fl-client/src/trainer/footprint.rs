//! Memory of a trainer's process group.

use std::fs;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Number of processes, without the guard.
    pub(crate) processes: usize,
    /// Sum of their largest resident memory, in bytes.
    pub(crate) bytes: u64,
}

impl Footprint {
    /// Measures the group now; `None` where the system does not say.
    pub(crate) fn of_group(group: i32) -> Option<Self> {
        let mut footprint = Self { processes: 0, bytes: 0 };
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let pid: Option<i32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if pid.is_none_or(|pid| pid == group) {
                continue;
            }
            // A process may end between the two reads.
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            if group_of(&stat) != Some(group) {
                continue;
            }
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            footprint.processes += 1;
            footprint.bytes += peak_of(&status).unwrap_or(0);
        }
        (footprint.processes > 0).then_some(footprint)
    }
}

/// The process group in a `/proc/PID/stat`. The name before it may contain anything but ends with the last `)`.
fn group_of(stat: &str) -> Option<i32> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(2)?.parse().ok()
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_and_peak_are_read_from_the_system_files() {
        assert_eq!(group_of("7 (a) b) S 1 42 42 0 -1 4194560"), Some(42));
        assert_eq!(group_of(""), None);
        assert_eq!(peak_of("Name:\tx\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
    }
}
