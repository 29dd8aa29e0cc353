//! Limits the size of the model that an archive declares: a few bytes can declare billions of zeros.

use std::path::Path;

use fl_compress::Archive;

use crate::failure::Failure;
use crate::table::grouped;

// The values of an archive may take 1/8 of the memory of the machine.
const SHARE: u64 = 8;
// Assumed memory of the machine if it cannot be determined.
const UNKNOWN: u64 = 8 << 30;

#[derive(Debug, clap::Args)]
pub(crate) struct Limit {
    /// Maximum number of values that the archive may declare [default: an eighth of this machine's memory, at 4 bytes
    /// per value].
    #[arg(long, value_name = "N", hide_default_value = true, default_value_t = by_memory(machine_memory()))]
    max_values: u64,
}

impl Limit {
    /// Succeeds if `archive`, read from `path`, declares at most `max_values` values.
    ///
    /// # Errors
    /// `Corrupt`, naming the largest tensor.
    pub(crate) fn check(&self, path: &Path, archive: &Archive<'_>) -> Result<(), Failure> {
        let declared = archive.layout.len() as u64;
        if declared <= self.max_values {
            return Ok(());
        }
        let largest = archive.layout.tensors().iter().max_by_key(|tensor| tensor.len);
        let largest = largest.map_or(String::new(), |tensor| {
            format!(" (largest: tensor `{}`, shape {:?})", tensor.name, tensor.shape)
        });
        let why = format!(
            "the archive declares {} values{largest}, more than the {} of --max-values; raise --max-values if you \
             trust the file",
            grouped(declared),
            grouped(self.max_values)
        );
        Err(Failure::corrupt(path, why))
    }
}

/// Default limit for a machine with `memory` bytes.
fn by_memory(memory: u64) -> u64 {
    memory / SHARE / 4
}

/// Memory in bytes of this machine, or of the control group of this process.
fn machine_memory() -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let groups = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let bounds = groups.into_iter().filter_map(|path| read(path).trim().parse().ok());
    bounds.chain(total(&read("/proc/meminfo"))).min().unwrap_or(UNKNOWN)
}

/// Memory in bytes according to `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_an_eighth_of_the_memory() {
        let meminfo = "MemTotal:       16252928 kB\nMemFree:         2048 kB\n";
        assert_eq!(total(meminfo), Some(16_252_928 << 10));
        assert_eq!(total("MemFree: 3 kB"), None);
        assert_eq!(total("MemTotal: many kB"), None);
        assert_eq!(by_memory(16 << 30), 512 << 20);
        assert!(machine_memory() > 0);
    }
}
