//! Which point of a variant is reported.

use super::summary::Summary;
use crate::statistics::Quality;

/// Bytes on the sockets differ from run to run by less than this share; points that are closer cost the same.
const EQUAL: f64 = 0.02;

/// Index in `rows` of the best row of `variant`. With `max_loss`, the one with the fewest bytes of those that lose at
/// most so much to the baseline, and of these that cost the same, the one with the best models by [`Summary::judged`].
/// Without it, or if none does, the one with the best models, and of equal ones the one with the fewest bytes. Of equal
/// rows the first. A row with a failed trial is not chosen. `None` if there is no other.
pub(super) fn best(rows: &[Summary], variant: &str, quality: Quality, max_loss: Option<f64>) -> Option<usize> {
    let own = rows.iter().enumerate();
    let own = own.filter(|(_, row)| row.variant == variant && row.failed == 0);
    let own = own.filter_map(|(at, row)| {
        let goodness = quality.goodness(row.judged()?.mean);
        let loss = row.judged_difference();
        Some(Candidate {
            at,
            goodness,
            bytes: row.bytes_up + row.bytes_down,
            is_within: loss
                .zip(max_loss)
                .is_some_and(|(loss, most)| -quality.goodness(loss.mean) <= most),
        })
    });
    let mut candidates: Vec<Candidate> = own.filter(|one| one.goodness.is_finite()).collect();
    if candidates.iter().any(|one| one.is_within) {
        candidates.retain(|one| one.is_within);
    } else {
        let top = best_of(&candidates);
        candidates.retain(|one| one.goodness >= top);
    }
    let least = candidates.iter().map(|one| one.bytes).fold(f64::INFINITY, f64::min);
    candidates.retain(|one| one.bytes <= least * (1.0 + EQUAL));
    let top = best_of(&candidates);
    candidates.into_iter().find(|one| one.goodness >= top).map(|one| one.at)
}

struct Candidate {
    at: usize,
    goodness: f64,
    bytes: f64,
    /// Whether it loses at most `max_loss`.
    is_within: bool,
}

fn best_of(candidates: &[Candidate]) -> f64 {
    candidates
        .iter()
        .map(|one| one.goodness)
        .fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::summary::Group;
    use super::super::summary::tests::group;
    use super::*;

    const ACCURACY: Quality = Quality::Accuracy;

    fn rows(groups: &[Group]) -> Vec<Summary> {
        groups
            .iter()
            .map(|one| one.summary(Some(ACCURACY), groups.first(), 0.5))
            .collect()
    }

    #[test]
    fn where_versions_are_averaged_the_averaged_model_decides() {
        let mut groups = [
            group("fp32", 0, &[&[0.9]], 1000),
            group("ours", 0, &[&[0.85]], 100),
            group("ours", 1, &[&[0.9]], 50),
        ];
        for (group, averaged) in groups.iter_mut().zip([0.91, 0.908, 0.88]) {
            let last = group.records[0].score.rounds.last_mut().unwrap();
            last.metrics.insert("evaluation/average_accuracy".to_owned(), averaged);
        }
        let rows = rows(&groups);
        assert_eq!(best(&rows, "ours", ACCURACY, Some(0.5)), Some(1));
        let difference = rows[1].averaged_difference.unwrap().mean;
        assert!(
            (difference + 0.2).abs() < 1e-9,
            "to the baseline's average: {difference}"
        );
    }

    #[test]
    fn the_best_or_the_cheapest_that_is_good_enough() {
        let groups = [
            group("fp32", 0, &[&[0.9]], 1000),
            group("ours", 0, &[&[0.899]], 100),
            group("ours", 1, &[&[0.896]], 50),
            group("ours", 2, &[&[0.88]], 10),
        ];
        let rows = rows(&groups);
        let point = |max_loss| best(&rows, "ours", ACCURACY, max_loss).map(|at| rows[at].point);
        assert_eq!(point(None), Some(0));
        assert_eq!(point(Some(0.5)), Some(1));
        assert_eq!(point(Some(5.0)), Some(2));
        assert_eq!(point(Some(0.01)), Some(0), "none is within: the best");
        assert_eq!(best(&rows, "none", ACCURACY, None), None);
    }

    #[test]
    fn a_point_with_a_failed_trial_is_not_chosen() {
        let mut groups = [group("ours", 0, &[&[0.9]], 10), group("ours", 1, &[&[0.8]], 10)];
        groups[0].failed = 1;
        assert_eq!(best(&rows(&groups), "ours", ACCURACY, None), Some(1));
        groups[1].failed = 1;
        assert_eq!(best(&rows(&groups), "ours", ACCURACY, None), None);
    }

    #[test]
    fn equal_points_differ_by_bytes_and_equal_bytes_by_quality() {
        let groups = [group("ours", 0, &[&[0.9]], 1000), group("ours", 1, &[&[0.9]], 900)];
        assert_eq!(best(&rows(&groups), "ours", ACCURACY, None), Some(1));
        let groups = [
            group("fp32", 0, &[&[0.9]], 9000),
            group("ours", 0, &[&[0.898]], 1000),
            group("ours", 1, &[&[0.899]], 1005),
            group("ours", 2, &[&[0.899]], 1003),
            group("ours", 3, &[&[0.9]], 1100),
        ];
        assert_eq!(best(&rows(&groups), "ours", ACCURACY, Some(0.5)), Some(2));
    }
}
