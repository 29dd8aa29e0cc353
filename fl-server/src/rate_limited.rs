//! Rate-limited logging, for warnings that an attacker can cause in any number.

use std::time::Duration;

use tokio::time::Instant;

/// Lets one log line per minute through and counts the suppressed occurrences.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    logged: Option<Instant>,
    occurrences: u64,
}

const INTERVAL: Duration = Duration::from_secs(60);

impl LogLimit {
    /// Counts one occurrence. Returns the occurrences since the last line if it is time for another.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        self.occurrences += 1;
        let recent = |logged| now.saturating_duration_since(logged) < INTERVAL;
        if self.logged.is_some_and(recent) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.occurrences))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_due_at_once_and_the_others_together() {
        let (mut limited, start) = (LogLimit::default(), Instant::now());
        assert_eq!(limited.due(start), Some(1));
        assert_eq!(limited.due(start), None);
        assert_eq!(limited.due(start + INTERVAL / 2), None);
        assert_eq!(limited.due(start + INTERVAL), Some(3));
        assert_eq!(limited.due(start + INTERVAL), None);
    }
}
