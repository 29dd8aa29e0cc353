//! What this client and its trainers add to the load, averaged as the kernel averages the load of a minute. Without it, a
//! client that trains would find its own device busy.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::surroundings::Surroundings;

/// The kernel's average forgets by e in this time, in seconds.
const MEMORY: f64 = 60.0;
/// Clock ticks a second in `/proc/PID/stat`, on every Linux that Rust runs on.
const TICKS: f64 = 100.0;
const MOST: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct OwnLoad {
    last: Option<(Instant, f64)>,
    load: f64,
}

impl OwnLoad {
    /// The average up to now; 0 at the first call.
    pub(super) fn next(&mut self, surroundings: &Surroundings) -> f64 {
        let now = Instant::now();
        let used = used(surroundings);
        if let Some((before, earlier)) = self.last.replace((now, used)) {
            let seconds = now.duration_since(before).as_secs_f64();
            self.load = averaged(self.load, used - earlier, seconds);
        }
        self.load
    }
}

/// The average after `seconds` in which `used` seconds of processor time passed. A process that ended takes its time with it.
fn averaged(load: f64, used: f64, seconds: f64) -> f64 {
    if seconds <= 0.0 {
        return load;
    }
    let keep = (-seconds / MEMORY).exp();
    load * keep + (used.max(0.0) / seconds) * (1.0 - keep)
}

/// Seconds of processor time of this process and those below it; what cannot be read counts as 0.
fn used(surroundings: &Surroundings) -> f64 {
    let mut open = vec![std::process::id()];
    let mut seen = BTreeSet::new();
    let mut ticks = 0;
    while let Some(process) = open.pop() {
        if seen.len() >= MOST || !seen.insert(process) {
            continue;
        }
        let folder = format!("proc/{process}");
        ticks += surroundings
            .text(&format!("{folder}/stat"))
            .ok()
            .and_then(|text| of_stat(&text))
            .unwrap_or(0);
        for thread in surroundings
            .names(&format!("{folder}/task"))
            .unwrap_or_default()
            .iter()
            .take(MOST)
        {
            let children = surroundings
                .text(&format!("{folder}/task/{thread}/children"))
                .unwrap_or_default();
            open.extend(
                children
                    .split_ascii_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok())
                    .take(MOST),
            );
        }
    }
    ticks as f64 / TICKS
}

/// User and system time of a process. Its name may have spaces and parentheses.
fn of_stat(text: &str) -> Option<u64> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user = fields.next()?.parse::<u64>().ok()?;
    let system = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    #[test]
    fn the_average_rises_to_what_is_used_and_forgets_it() {
        let load = (0..40).fold(0.0, |load, _| averaged(load, 30.0, 15.0));
        assert!((load - 2.0).abs() < 1e-3, "{load}");
        let idle = (0..4).fold(load, |load, _| averaged(load, 0.0, 15.0));
        assert!((idle - load / std::f64::consts::E).abs() < 1e-9);
        assert_eq!(averaged(1.5, -9.0, 0.0), 1.5);
        assert!(averaged(1.0, -9.0, 1.0) < 1.0);
    }

    #[test]
    fn the_processes_below_count_and_nonsense_does_not() {
        let own = std::process::id();
        let (stat, task) = (format!("proc/{own}/stat"), format!("proc/{own}/task/1/children"));
        let root = fake::root(&[
            (&stat, "7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20"),
            (&task, "8 9 x"),
            ("proc/8/stat", "8 (python3) R 7 1 1 0 -1 0 0 0 0 0 300 0 0 0 20"),
            // A circle, as files that change while they are read may have.
            ("proc/8/task/8/children", &own.to_string()),
            ("proc/9/stat", "nonsense"),
        ]);
        assert_eq!(used(&fake::when(root.path()).surroundings), 5.0);
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(used(&fake::when(empty.path()).surroundings), 0.0);
    }
}
