//! The limit of the relative error, by round.

use std::fmt;
use std::str::FromStr;

/// Largest relative error of a frame, above 0 and below 1: `"0.7"` in every round, or `"0.25 to 0.8 by round 6"`, which changes
/// in equal steps from round 1 to round 6.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorLimit {
    first: f64,
    last: f64,
    /// The round from which `last` holds, at least 2; 1 if the limit does not change.
    by: u32,
}

impl ErrorLimit {
    // Of the default codec. Updates of early rounds cost most when they are late: an error of 0.25 in round 1 is within
    // 3 % of float32 on models that compress badly, and models that compress well have less at a quarter of a bit. From
    // round 6 on, a lower limit than 0.8 buys little for its bytes (docs/experiments.md).
    pub(crate) const DEFAULT: Self = Self {
        first: 0.25,
        last: 0.8,
        by: 6,
    };

    /// Whether the first rounds have the lowest limit.
    pub fn rises(self) -> bool {
        self.first < self.last
    }

    /// The limit in `round`; rounds count from 1.
    pub fn at(self, round: u64) -> f64 {
        let left = u64::from(self.by).saturating_sub(round.max(1));
        match left {
            0 => self.last,
            left => self.last + (self.first - self.last) * left as f64 / f64::from(self.by - 1),
        }
    }
}

impl FromStr for ErrorLimit {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let error = |text: &str| match text.parse() {
            Ok(error) if error > 0.0 && error < 1.0 => Ok(error),
            _ => Err(()),
        };
        let Some((first, rest)) = text.split_once(" to ") else {
            return error(text).map(|error| Self {
                first: error,
                last: error,
                by: 1,
            });
        };
        let (last, by) = rest.split_once(" by round ").ok_or(())?;
        let by = by.parse().ok().filter(|&by| by > 1).ok_or(())?;
        Ok(Self {
            first: error(first)?,
            last: error(last)?,
            by,
        })
    }
}

impl fmt::Display for ErrorLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { last, by: 1, .. } => write!(f, "{last}"),
            Self { first, last, by } => write!(f, "{first} to {last} by round {by}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_moves_in_equal_steps_and_stays_at_its_end() {
        let limit: ErrorLimit = "0.3 to 0.8 by round 6".parse().unwrap();
        for (round, expected) in [
            (0, 0.3),
            (1, 0.3),
            (2, 0.4),
            (4, 0.6),
            (6, 0.8),
            (7, 0.8),
            (u64::MAX, 0.8),
        ] {
            assert!(
                (limit.at(round) - expected).abs() < 1e-12,
                "round {round}: {}",
                limit.at(round)
            );
        }
        let constant: ErrorLimit = "0.7".parse().unwrap();
        assert_eq!([0, 1, 9].map(|round| constant.at(round)), [0.7; 3]);
    }

    #[test]
    fn texts_come_back_and_nonsense_is_refused() {
        for text in ["0.7", "0.3 to 0.8 by round 6", "0.8 to 0.5 by round 2"] {
            assert_eq!(
                text.parse().map(|limit: ErrorLimit| limit.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in [
            "",
            "0",
            "1",
            "nan",
            "-0.1",
            "0.3 to",
            "0.3 to 0.8",
            "0.3 to 1 by round 6",
            "0.3 to 0.8 by round 1",
            "0.3 to 0.8 by round -2",
            "0.3 to 0.8 by 6",
            "0.3 to 0.5 to 0.8 by round 6",
            "0.3 to 0.8 by round 99999999999",
        ] {
            assert_eq!(text.parse::<ErrorLimit>(), Err(()), "{text}");
        }
    }
}
