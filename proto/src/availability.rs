//! Whether a client takes part in rounds.

use std::time::Duration;

use crate::error::ProtocolError;
use crate::foreign_text::foreign_text;
use crate::limits::MAX_REASON;
use crate::wire;

// Longest time until a client is available that is believed: a year.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Whether a client takes part in rounds, by the conditions of its device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Availability {
    /// It may be asked for an update.
    #[default]
    Available,
    /// It trains nothing until it says that it is available.
    Paused {
        /// For a person: at most [`crate::MAX_REASON`] bytes on one line.
        reason: String,
    },
    /// As `Paused`, and for how long at least.
    NotBefore {
        /// Time from now on, to the millisecond.
        left: Duration,
        /// As in `Paused`.
        reason: String,
    },
}

impl Availability {
    /// Whether the client may be asked for an update.
    pub fn is_available(&self) -> bool {
        *self == Self::Available
    }
}

impl From<Availability> for wire::Availability {
    fn from(availability: Availability) -> Self {
        let (kind, left, reason) = match availability {
            Availability::Available => (wire::AvailabilityKind::Available, Duration::ZERO, String::new()),
            Availability::Paused { reason } => (wire::AvailabilityKind::Paused, Duration::ZERO, reason),
            Availability::NotBefore { left, reason } => (wire::AvailabilityKind::NotBefore, left, reason),
        };
        Self {
            kind: kind.into(),
            left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            reason: foreign_text(&reason, MAX_REASON),
        }
    }
}

impl TryFrom<wire::Availability> for Availability {
    type Error = ProtocolError;

    fn try_from(availability: wire::Availability) -> Result<Self, ProtocolError> {
        let reason = foreign_text(&availability.reason, MAX_REASON);
        match availability.kind() {
            wire::AvailabilityKind::Unspecified => Err(ProtocolError::Missing("availability")),
            wire::AvailabilityKind::Available => Ok(Self::Available),
            wire::AvailabilityKind::Paused => Ok(Self::Paused { reason }),
            wire::AvailabilityKind::NotBefore => {
                let left = Duration::from_millis(availability.left_ms).min(LONGEST);
                Ok(Self::NotBefore { left, reason })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn availabilities_survive_the_wire() {
        let reason = "on battery: BAT0".to_owned();
        let left = Duration::from_millis(36_000_001);
        for availability in [
            Availability::Available,
            Availability::Paused { reason: reason.clone() },
            Availability::NotBefore { left, reason },
        ] {
            let wire = wire::Availability::from(availability.clone());
            assert_eq!(Availability::try_from(wire).unwrap(), availability);
        }
    }

    #[test]
    fn a_kind_that_is_missing_or_unknown_is_refused_and_the_rest_is_bounded() {
        for kind in [0, 9, -1] {
            let wire = wire::Availability {
                kind,
                ..Default::default()
            };
            assert!(Availability::try_from(wire).is_err(), "{kind}");
        }
        let wire = wire::Availability {
            kind: 3,
            left_ms: u64::MAX,
            reason: format!("a\nb{}", "x".repeat(5000)),
        };
        let Ok(Availability::NotBefore { left, reason }) = Availability::try_from(wire) else {
            panic!("refused")
        };
        assert!(left == LONGEST && reason.len() == crate::MAX_REASON && reason.starts_with("a b"));
    }
}
