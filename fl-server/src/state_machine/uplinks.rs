//! What the server knows of each client's way to it: measured on its uploads, and summed over their frames.

use fl_proto::ClientId;

use crate::state_machine::align::Part;
use crate::state_machine::round::Round;
use crate::storage::record::Transfer;

/// Part of an average that is left after a measurement, in tenths (COMPRESSION: EWMA 0.7).
const LEFT: u128 = 7;

/// Millionths: the unit of bandwidths.
const UNIT: u128 = 1_000_000;
/// Largest ratio of a rate to the median; the smallest is its inverse. Codecs bound their factors more tightly.
const MOST_RATIO: u128 = 4_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkEstimate {
    /// Bytes a second, at least 1.
    pub rate: u64,
    /// Microseconds from the task to the first byte of the upload.
    pub wait: u64,
    /// Bytes beside the frame.
    pub overhead: u64,
}

/// What is known of a client from its accepted updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Uplink {
    /// Bytes of their frames.
    pub sent: u64,
    /// Budget of the last one, if it had one of its own.
    pub budget: Option<u64>,
    /// `None` before the first measurement.
    pub measured: Option<LinkEstimate>,
}

impl Uplink {
    /// The client's uplink after its update in `round`, if it has one there.
    pub(super) fn after(self, round: &Round, client: &ClientId) -> Self {
        let Some(update) = round.updates.get(client) else {
            return self;
        };
        let measured = round.transfers.get(client).map(|transfer| {
            let now = LinkEstimate::of(transfer, update.len);
            self.measured.map_or(now, |before| before.then(now))
        });
        Self {
            sent: self.sent.saturating_add(update.len),
            budget: round.budgets.get(client).copied().or(self.budget),
            measured: measured.or(self.measured),
        }
    }

    /// Its rate in millionths of `usual`.
    pub(super) fn over(&self, usual: u64) -> Option<u32> {
        let ratio = u128::from(self.measured?.rate) * UNIT / u128::from(usual.max(1));
        u32::try_from(ratio.clamp(UNIT / MOST_RATIO, UNIT * MOST_RATIO)).ok()
    }
}

/// The median of the rates that were measured; `None` of none.
pub(super) fn usual_rate(cohort: &[Uplink]) -> Option<u64> {
    median(cohort, |measured| measured.rate)
}

/// The lower median of a quantity; `None` of none.
fn median(cohort: &[Uplink], of: fn(&LinkEstimate) -> u64) -> Option<u64> {
    let mut values: Vec<u64> = cohort
        .iter()
        .filter_map(|uplink| uplink.measured.as_ref().map(of))
        .collect();
    values.sort_unstable();
    values.get((values.len().max(1) - 1) / 2).copied()
}

impl LinkEstimate {
    /// Of one upload whose frame had `frame` bytes.
    fn of(transfer: &Transfer, frame: u64) -> Self {
        let rate = u128::from(transfer.bytes) * 1_000_000 / u128::from(transfer.micros.max(1));
        Self {
            rate: u64::try_from(rate).unwrap_or(u64::MAX).max(1),
            wait: transfer.wait,
            overhead: transfer.bytes.saturating_sub(frame),
        }
    }

    fn then(self, now: Self) -> Self {
        Self {
            rate: mean(self.rate, now.rate).max(1),
            wait: mean(self.wait, now.wait),
            overhead: mean(self.overhead, now.overhead),
        }
    }
}

fn mean(before: u64, now: u64) -> u64 {
    let sum = LEFT * u128::from(before) + (10 - LEFT) * u128::from(now);
    (sum / 10) as u64
}

/// The parts of `asked`, whose last budget is `reference` if they had none. A client without a measurement takes the medians of
/// the `cohort`. `None` if that has no measurement.
pub(super) fn parts(asked: &[Uplink], cohort: &[Uplink], reference: u64) -> Option<Vec<Part>> {
    let usual = LinkEstimate {
        rate: usual_rate(cohort)?,
        wait: median(cohort, |measured| measured.wait)?,
        overhead: median(cohort, |measured| measured.overhead)?,
    };
    let parts = asked.iter().map(|uplink| {
        let LinkEstimate { rate, wait, overhead } = uplink.measured.unwrap_or(usual);
        Part {
            wait,
            overhead,
            rate,
            last: uplink.budget.unwrap_or(reference),
        }
    });
    Some(parts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_move_by_three_tenths_and_the_first_measurement_counts_whole() {
        let transfer = |bytes, micros, wait| Transfer { wait, bytes, micros };
        let first = LinkEstimate::of(&transfer(1_100, 1_000_000, 50), 1_000);
        assert_eq!((first.rate, first.wait, first.overhead), (1_100, 50, 100));
        let second = first.then(LinkEstimate::of(&transfer(2_100, 1_000_000, 150), 2_000));
        assert_eq!((second.rate, second.wait, second.overhead), (1_400, 80, 100));
        let extreme = LinkEstimate::of(&transfer(u64::MAX, 0, u64::MAX), 0);
        assert_eq!(extreme.then(extreme).rate, u64::MAX);
        assert_eq!(LinkEstimate::of(&transfer(0, u64::MAX, 0), 5).rate, 1);
    }

    #[test]
    fn bandwidths_are_rates_over_the_median_in_millionths() {
        let of = |rate| Uplink {
            measured: Some(LinkEstimate {
                rate,
                wait: 0,
                overhead: 0,
            }),
            ..Uplink::default()
        };
        let cohort = [of(300), of(100), Uplink::default(), of(200), of(u64::MAX)];
        let found = cohort.map(|uplink| uplink.over(usual_rate(&cohort).unwrap()));
        assert_eq!(
            found,
            [
                Some(1_500_000),
                Some(500_000),
                None,
                Some(1_000_000),
                Some(4_000_000_000)
            ]
        );
        assert_eq!(of(1).over(u64::MAX), Some(250));
        assert_eq!(usual_rate(&[]), None);
    }

    #[test]
    fn a_client_without_a_measurement_is_like_the_median() {
        let of = |rate| Uplink {
            measured: Some(LinkEstimate {
                rate,
                wait: 10 * rate,
                overhead: 7,
            }),
            ..Uplink::default()
        };
        let uplinks = [of(3), of(1), Uplink::default(), of(2)];
        let found = parts(&uplinks[2..], &uplinks, 99).unwrap();
        assert_eq!((found[0].rate, found[0].wait, found[0].last), (2, 20, 99));
        assert_eq!(parts(&uplinks, &uplinks[2..3], 99), None);
    }
}
