//! Warnings that an attacker could cause in any number: each is said once in a while, with how often it happened since.

use std::time::Duration;

use tokio::time::Instant;

/// What happened since it was said last.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    said: Option<Instant>,
    times: u64,
}

/// Time between two warnings.
const BETWEEN: Duration = Duration::from_secs(60);

impl Seldom {
    /// It has happened. If it is time to say so: how often since it was said last.
    pub(crate) fn now(&mut self, now: Instant) -> Option<u64> {
        self.times += 1;
        if self
            .said
            .is_some_and(|said| now.saturating_duration_since(said) < BETWEEN)
        {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_the_others_together() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.now(start), Some(1));
        assert_eq!(seldom.now(start), None);
        assert_eq!(seldom.now(start + BETWEEN / 2), None);
        assert_eq!(seldom.now(start + BETWEEN), Some(3));
        assert_eq!(seldom.now(start + BETWEEN), None);
    }
}
