//! How large a model an archive may declare: a few bytes may stand for billions of zeros.

use std::path::Path;

use fl_compress::Archive;

use crate::failure::Failure;
use crate::table::grouped;

/// Share of the machine's memory that the values of an archive may take.
const SHARE: u64 = 8;
/// What is taken as the machine's memory where it cannot be found out.
const UNKNOWN: u64 = 8 << 30;

/// Bound of what an archive may declare.
#[derive(Debug, clap::Args)]
pub(crate) struct Limit {
    /// Most values that the archive may declare; by default an eighth of this machine's memory, at four bytes a value.
    #[arg(long, value_name = "N", default_value_t = by_memory(machine_memory()))]
    max_values: u64,
}

impl Limit {
    /// Succeeds if `archive`, which was read from `path`, declares no more values than allowed.
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
            "the archive declares {} values{largest}, more than the {} of --max-values; give a larger --max-values if you \
             trust the file",
            grouped(declared),
            grouped(self.max_values)
        );
        Err(Failure::corrupt(path, why))
    }
}

/// Values that a machine of `memory` bytes takes by default.
fn by_memory(memory: u64) -> u64 {
    memory / SHARE / 4
}

/// Bytes of memory of this machine, or of the control group that the process is confined to.
fn machine_memory() -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let groups = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let bounds = groups.into_iter().filter_map(|path| read(path).trim().parse().ok());
    bounds.chain(total(&read("/proc/meminfo"))).min().unwrap_or(UNKNOWN)
}

/// Bytes of memory as Linux says in `/proc/meminfo`.
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
