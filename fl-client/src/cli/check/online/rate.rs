//! The rates of a connection, from how long a probe took.

use std::fmt;
use std::time::Duration;

use fl_proto::MAX_PROBE;

/// A shorter time is that of the buffers and of the scheduler, not of the link.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long the parts of a probe took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timed {
    /// From the first byte sent until the client knew that the server had read the last.
    pub(super) up: Duration,
    /// From the result until the last byte.
    pub(super) down: Duration,
}

impl Timed {
    pub(super) fn took(&self) -> Duration {
        self.up + self.down
    }
}

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    /// Bytes a second.
    pub(super) bytes: f64,
    /// Whether the link may be faster: the probe was too short to tell.
    is_least: bool,
}

/// Both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    pub(super) up: Rate,
    pub(super) down: Rate,
}

impl Rates {
    /// From a probe of [`MAX_PROBE`] bytes each way. The upload waits a round trip for its answer.
    pub(super) fn of(measured: &Timed, round_trip: Duration) -> Self {
        Self {
            up: Rate::of(measured.up, round_trip),
            down: Rate::of(measured.down, Duration::ZERO),
        }
    }
}

impl Rate {
    /// `waited` of the time `took` moved no byte. Where that is most of it, the rest is noise, and the whole time bounds the rate.
    fn of(took: Duration, waited: Duration) -> Self {
        let moving = took.saturating_sub(waited);
        let is_least = moving < waited || moving < SHORTEST;
        let time = if is_least { took.max(SHORTEST) } else { moving };
        Self {
            bytes: MAX_PROBE as f64 / time.as_secs_f64(),
            is_least,
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.is_least { "at least " } else { "" };
        write!(f, "{least}{:.2} Mbit/s", self.bytes * 8.0 / 1e6)
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to the server, {} from it", self.up, self.down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_no_higher_than_what_the_probe_shows() {
        let ms = Duration::from_millis;
        for (up, round_trip, down, shown) in [
            (2_147, 50, 1_000, "1.00 Mbit/s to the server, 2.10 Mbit/s from it"),
            // The connection took longer than the upload, as it does where a packet is lost.
            (80, 100, 8, "at least 26.21 Mbit/s to the server, 262.14 Mbit/s from it"),
            (
                150,
                100,
                8,
                "at least 13.98 Mbit/s to the server, 262.14 Mbit/s from it",
            ),
            (
                0,
                0,
                0,
                "at least 2097.15 Mbit/s to the server, at least 2097.15 Mbit/s from it",
            ),
        ] {
            let measured = Timed {
                up: ms(up),
                down: ms(down),
            };
            assert_eq!(
                Rates::of(&measured, ms(round_trip)).to_string(),
                shown,
                "{up} ms, {down} ms"
            );
        }
    }
}
