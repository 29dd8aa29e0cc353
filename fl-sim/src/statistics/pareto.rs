//! The Pareto front of bytes and quality.

/// Indices of the points that no other point dominates: none has as few bytes and as high a goodness, and is better in
/// one of them. Ascending by bytes, of equal points the first. Points that are not finite are left out. `points`:
/// bytes, goodness.
pub(crate) fn front(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.retain(|&at| points[at].0.is_finite() && points[at].1.is_finite());
    order.sort_by(|&a, &b| {
        let bytes = points[a].0.total_cmp(&points[b].0);
        bytes.then(points[b].1.total_cmp(&points[a].1))
    });
    let mut best = f64::NEG_INFINITY;
    order.retain(|&at| {
        let is_better = points[at].1 > best;
        best = best.max(points[at].1);
        is_better
    });
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dominates(a: (f64, f64), b: (f64, f64)) -> bool {
        a.0 <= b.0 && a.1 >= b.1 && a != b
    }

    proptest! {
        #[test]
        fn no_point_of_the_front_is_dominated_and_every_other_is(
            points in prop::collection::vec((0u8..20, 0u8..20), 0..40)
        ) {
            let points: Vec<(f64, f64)> = points.into_iter().map(|(a, b)| (a.into(), b.into())).collect();
            let front = front(&points);
            for (at, point) in points.iter().enumerate() {
                let dominated = points.iter().any(|other| dominates(*other, *point));
                let first = points.iter().position(|other| other == point) == Some(at);
                prop_assert_eq!(front.contains(&at), !dominated && first);
            }
            prop_assert!(front.windows(2).all(|pair| points[pair[0]].0 < points[pair[1]].0));
        }
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        assert_eq!(front(&[(1.0, f64::NAN), (2.0, 3.0), (f64::INFINITY, 9.0)]), [1]);
    }
}
