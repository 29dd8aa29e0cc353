//! `free_memory_above`: memory that programs can take without swapping, `MemAvailable` in `/proc/meminfo`.

use super::super::reading::Reading;
use super::source::{Context, Source};

pub(super) const SOURCE: Source = Source::new("free_memory_above", |when| when.free_memory_above.is_some(), read);

const FILE: &str = "proc/meminfo";
const MIB: u64 = 1 << 20;

fn read(context: &mut Context<'_>) -> Result<Reading, String> {
    let text = context.when.surroundings.text(FILE)?;
    let least = context.when.free_memory_above.unwrap_or_default();
    let free = available(&text).ok_or_else(|| format!("/{FILE} has no MemAvailable"))?;
    let shown = format!("{} MiB of memory free, of more than {} MiB", free / MIB, least / MIB);
    Ok(Reading::of(free > least, shown))
}

fn available(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let number = rest.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    fn reading(text: &str) -> Reading {
        let root = fake::root(&[(FILE, text)]);
        let mut when = fake::when(root.path());
        when.free_memory_above = Some(500 * MIB);
        fake::read(&SOURCE, &when)
    }

    #[test]
    fn available_memory_counts_and_not_what_is_unused() {
        let text = |available| format!("MemTotal: 8000000 kB\nMemFree: 100 kB\nMemAvailable:   {available} kB\n");
        assert!(matches!(reading(&text(600_000)), Reading::Holds(_)));
        assert_eq!(
            reading(&text(500 * 1024)),
            Reading::Fails("500 MiB of memory free, of more than 500 MiB".into())
        );
    }

    #[test]
    fn nonsense_is_a_missing_source() {
        for text in [
            "",
            "MemAvailable: kB",
            "MemAvailable: -5 kB",
            "MemAvailable: 18446744073709551615 kB",
            "MemFree: 5 kB",
        ] {
            assert!(matches!(reading(text), Reading::Missing(_)), "{text}");
        }
    }
}
