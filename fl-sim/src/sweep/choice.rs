//! Which point of a variant is reported.

use std::cmp::Ordering;

use super::statistics::Quality;
use super::summary::Summary;

/// Index in `rows` of the best row of `variant`: with `max_loss`, the one with the fewest bytes of those that lose at most so much
/// to the baseline; without it, or if none does, the one with the best mean of the last three rounds. Of equal rows, the one with
/// fewer bytes, then the first. A row with a failed trial is not chosen. `None` if there is no other.
pub(super) fn best(rows: &[Summary], variant: &str, quality: Quality, max_loss: Option<f64>) -> Option<usize> {
    let goodness = |row: &Summary| {
        row.tail
            .map(|tail| quality.goodness(tail.mean))
            .filter(|good| good.is_finite())
    };
    let whole = |row: &Summary| row.variant == variant && row.failed == 0 && goodness(row).is_some();
    let own: Vec<usize> = (0..rows.len()).filter(|&at| whole(&rows[at])).collect();
    let within = |row: &Summary| {
        let loss = row.tail_difference.map(|difference| -quality.goodness(difference.mean));
        loss.zip(max_loss).is_some_and(|(loss, most)| loss <= most)
    };
    let bytes = |at: &usize| rows[*at].bytes_up + rows[*at].bytes_down;
    let by_bytes = |a: &usize, b: &usize| bytes(a).total_cmp(&bytes(b)).then(a.cmp(b));
    let cheapest = own.iter().copied().filter(|at| within(&rows[*at])).min_by(by_bytes);
    cheapest.or_else(|| {
        own.into_iter().min_by(|a, b| {
            let good = goodness(&rows[*b]).partial_cmp(&goodness(&rows[*a]));
            good.unwrap_or(Ordering::Equal).then(by_bytes(a, b))
        })
    })
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
    fn equal_points_are_told_by_bytes() {
        let groups = [group("ours", 0, &[&[0.9]], 10), group("ours", 1, &[&[0.9]], 9)];
        assert_eq!(best(&rows(&groups), "ours", ACCURACY, None), Some(1));
    }
}
