//! Bounds on the weight of one client in a round, relative to the other clients, so that a malicious or broken client does
//! not decide the model.
//!
//! Every bound is a function of the accepted updates of the round and of one number from the rounds before. It depends
//! neither on the order of arrival nor on a clock, so a replay applies the same bounds.

use fl_proto::Metric;
use serde::{Deserialize, Serialize};

/// Fewer updates have no majority, so their median is not robust.
const MAJORITY: usize = 3;
/// Largest factor by which the reference norm falls in a round, and rises in one without a majority.
const DRIFT: f64 = 2.0;
/// Largest weight that a metric counts with: more examples, tokens or pixels than any client has.
const MAX_METRIC_WEIGHT: f64 = 1e18;

/// The `[limits]` table of a run.toml. `f64::INFINITY` switches a limit off; so does a `share` of 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Most examples that an update counts with, as a multiple of the round's median. At least 1.
    pub examples: f64,
    /// Most examples that an update counts with. At least 1.
    pub max_examples: f64,
    /// Largest share of one client in a round's examples, and in the sum of norm times examples. Above 0.
    pub share: f64,
    /// Norm to which an update is scaled down, as a multiple of the reference norm. At least 1.
    pub norm: f64,
    /// Norm to which an update is scaled down. Above 0.
    pub max_norm: f64,
    /// Norm above which an update does not count, as a multiple of the reference norm. At least `norm`.
    pub discard: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            examples: 3.0,
            max_examples: f64::INFINITY,
            share: 0.4,
            norm: 4.0,
            max_norm: f64::INFINITY,
            discard: 40.0,
        }
    }
}

/// L2 norms of a round's decoded updates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Norms {
    /// One for each update.
    pub(crate) values: Vec<f64>,
    /// The reference norm; `None` while at most half of each round's updates were nonzero.
    pub(crate) reference: Option<f64>,
}

impl Norms {
    /// What the norms are compared with. Without a reference that is the smallest nonzero one, which exceeds no honest nonzero
    /// norm; infinite if all are zero.
    pub(crate) fn limit(&self) -> f64 {
        let nonzero = self.values.iter().copied().filter(|norm| *norm > 0.0);
        self.reference.unwrap_or_else(|| nonzero.fold(f64::INFINITY, f64::min))
    }
}

/// The weight of one update in its round, under the plan's limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Examples that it counts with; 0 if it does not count.
    pub examples: f64,
    /// Factor of its values, 0 to 1.
    pub scale: f64,
    /// Its factor in the average: its share of all examples, times `scale`.
    pub weight: f64,
}

impl Part {
    fn contribution(&self, norm: f64) -> f64 {
        self.examples * self.scale * norm
    }
}

impl Limits {
    pub(crate) fn use_norms(&self) -> bool {
        self.share < 1.0
            || [self.norm, self.max_norm, self.discard]
                .iter()
                .any(|limit| limit.is_finite())
    }

    /// The weight of each update of a round; without `norms`, by examples only.
    pub(crate) fn parts(&self, examples: &[u64], norms: Option<&Norms>) -> Vec<Part> {
        let reference = norms.map_or(f64::INFINITY, Norms::limit);
        let norms = norms.map_or_else(|| vec![0.0; examples.len()], |norms| norms.values.clone());
        // An infinite bound or reference is never exceeded; a product of 0 and infinity cannot occur.
        let counts: Vec<bool> = norms.iter().map(|norm| *norm <= self.discard * reference).collect();
        let claimed: Vec<f64> = examples.iter().map(|n| (*n as f64).min(self.max_examples)).collect();
        let counted = claimed.iter().zip(&counts).filter(|(_, counts)| **counts);
        let most = cap(counted.map(|(claimed, _)| *claimed), self.examples, self.share);
        let mut parts: Vec<Part> = claimed
            .iter()
            .zip(&counts)
            .map(|(claimed, counts)| Part {
                examples: if *counts { claimed.min(most) } else { 0.0 },
                scale: 1.0,
                weight: 0.0,
            })
            .collect();
        let total: f64 = parts.iter().map(|part| part.examples).sum();
        let longest = self.max_norm.min(self.norm * reference);
        for (part, norm) in parts.iter_mut().zip(&norms) {
            if *norm > longest {
                part.scale = longest / norm;
            }
        }
        // Without updates that say next to nothing, such as those of clients whose training changed nothing: they would leave the
        // others no more than a few times their own change.
        let speaking = parts.iter().zip(&norms);
        let speaking = speaking.filter(|(_, norm)| **norm > 0.0 && **norm * self.norm >= reference);
        let contributions = speaking.map(|(part, norm)| part.contribution(*norm));
        let most = cap(contributions.filter(|value| *value > 0.0), f64::INFINITY, self.share);
        for (part, norm) in parts.iter_mut().zip(&norms) {
            let contribution = part.contribution(*norm);
            if contribution > most {
                part.scale *= most / contribution;
            }
            part.weight = if total > 0.0 {
                part.examples / total * part.scale
            } else {
                0.0
            };
        }
        parts
    }
}

/// The reference norm of a round: the upper median of all norms, zeros included. So at most half of the updates, however small,
/// cannot set it, and fewer than half, however large, cannot raise it above the largest norm of the others.
///
/// It falls at most by a factor of two from the round before: where a client that trains misses a round, most updates of that
/// round may say nothing. For the same reason it stays where most updates are zero. Without a majority it also rises at most
/// by that factor.
pub(crate) fn reference(norms: &[f64], before: Option<f64>) -> Option<f64> {
    let mut sorted = norms.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (median(&sorted).filter(|median| *median > 0.0), before) {
        (Some(median), Some(before)) if sorted.len() < MAJORITY => Some(median.clamp(before / DRIFT, before * DRIFT)),
        (Some(median), Some(before)) => Some(median.max(before / DRIFT)),
        (median, before) => median.or(before),
    }
}

/// Examples with which evaluations and training losses count, by the default limits: displays use records, which do not have
/// the plan.
pub(crate) fn evaluation_weights(examples: &[u64]) -> Vec<u64> {
    let limits = Limits::default();
    let most = cap(examples.iter().map(|n| *n as f64), limits.examples, limits.share);
    // The cap is infinite only without values; the cast then saturates.
    examples.iter().map(|n| (*n).min(most as u64)).collect()
}

/// Mean loss of trainings or evaluations, each with its examples, as that of a metric. `None` without examples.
pub(crate) fn mean_loss(reports: impl Iterator<Item = (u64, f64)>) -> Option<f64> {
    let counted = reports.filter(|(examples, _)| *examples > 0);
    let counted: Vec<Metric> = counted
        .map(|(examples, value)| Metric {
            value,
            weight: examples as f64,
        })
        .collect();
    (!counted.is_empty()).then(|| mean_metric(&counted))
}

/// Mean of a metric over the clients that report it; `reports` in the order of the clients' names, at least one.
///
/// The bounds are those of examples, applied to the weights: their unit is the learner's (examples, tokens, pixels), so an absolute
/// bound by examples would distort honest weights. With a majority, a magnitude counts with at most as many times the median of
/// the nonzero ones as the norm of an update that counts.
pub(crate) fn mean_metric(reports: &[Metric]) -> f64 {
    let limits = Limits::default();
    // The sums of the weights stay finite.
    let claimed = reports.iter().map(|report| report.weight.min(MAX_METRIC_WEIGHT));
    let most = cap(claimed.clone(), limits.examples, limits.share);
    let weights: Vec<f64> = claimed.map(|weight| weight.min(most)).collect();
    let total: f64 = weights.iter().sum();
    let largest = magnitudes(reports.iter().map(|report| report.value)).map_or(f64::MAX, |(_, most)| most);
    let bounded = reports.iter().map(|report| report.value.clamp(-largest, largest));
    let weighed = bounded.zip(&weights);
    let sum: f64 = weighed.clone().map(|(value, weight)| weight * value).sum();
    if sum.is_finite() {
        return sum / total;
    }
    // Of values at the end of the range; their shares may add up to a little more than 1.
    let mean: f64 = weighed.map(|(value, weight)| weight / total * value).sum();
    mean.clamp(-f64::MAX, f64::MAX)
}

/// The median magnitude of the values that are not zero, and the largest with which one of them counts. `None` without a
/// majority.
pub(crate) fn magnitudes(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut sizes: Vec<f64> = values.map(f64::abs).filter(|size| *size > 0.0).collect();
    sizes.sort_by(f64::total_cmp);
    let median = median(&sizes).filter(|_| sizes.len() >= MAJORITY)?;
    Some((median, (Limits::default().discard * median).min(f64::MAX)))
}

/// The bound on each of `values`: `times` their median, and at most `share` of the sum of all bounded values; but at least the
/// median. With two values or fewer it is `times` the smaller one, and `share` does not apply.
fn cap(values: impl Iterator<Item = f64>, times: f64, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let Some(median) = median(&sorted) else {
        return f64::INFINITY;
    };
    if sorted.len() < MAJORITY {
        return sorted[0] * times;
    }
    (median * times).min(filled(&sorted, share).max(median))
}

/// The largest bound that is at most `share` of the sum of all `sorted` values under that bound. 0 if there is none.
fn filled(sorted: &[f64], share: f64) -> f64 {
    // Prefix sums: subtracting a huge value from the total would cancel the others.
    let mut sums = Vec::with_capacity(sorted.len());
    sums.extend(sorted.iter().scan(0.0, |sum, value| {
        *sum += value;
        Some(*sum)
    }));
    for (above, (value, rest)) in sorted.iter().zip(&sums).rev().enumerate() {
        // `above` values are cut to the bound: bound = share * (rest + above * bound).
        let left = 1.0 - share * above as f64;
        if left <= 0.0 {
            return 0.0;
        }
        let bound = share * rest / left;
        if bound >= *value {
            return if above == 0 { f64::INFINITY } else { bound };
        }
    }
    0.0
}

/// The upper median: the largest order statistic that fewer than half of the values cannot raise above all others.
fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn norms(values: &[f64]) -> Norms {
        Norms {
            values: values.to_vec(),
            reference: reference(values, None),
        }
    }

    fn weights(examples: &[u64], values: &[f64]) -> Vec<f64> {
        let parts = Limits::default().parts(examples, Some(&norms(values)));
        parts.iter().map(|part| part.weight).collect()
    }

    #[test]
    fn clients_that_are_much_alike_count_as_they_claim() {
        let (examples, values) = ([60, 100, 140, 90, 120], [1.0, 1.3, 0.7, 0.9, 1.1]);
        let expected = examples.map(|n| n as f64 / 510.0);
        assert_eq!(weights(&examples, &values), expected);
    }

    #[test]
    fn one_of_four_has_at_most_two_fifths_of_the_round_whatever_it_claims() {
        for (examples, norm) in [(1 << 40, 1.0), (100, 4.0), (1 << 40, 39.0), (1 << 40, 1e-3)] {
            let all = [100, 100, 100, examples];
            let parts = weights(&all, &[1.0, 1.0, 1.0, norm]);
            let moved: Vec<f64> = parts
                .iter()
                .zip([1.0, 1.0, 1.0, norm])
                .map(|(part, norm)| part * norm)
                .collect();
            let sum: f64 = moved.iter().sum();
            assert!(moved[3] <= 0.4 * sum + 1e-12, "{examples} {norm}: {moved:?}");
            assert!(
                moved[0] >= 0.19,
                "the others keep their part: {examples} {norm}: {moved:?}"
            );
        }
    }

    #[test]
    fn an_update_far_beyond_the_others_does_not_count_and_leaves_them_their_weight() {
        assert_eq!(
            weights(&[10, 10, 10, 1 << 40], &[1.0, 1.2, 0.8, 1e30]),
            [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]
        );
        assert_eq!(
            weights(&[10, 10, 10], &[0.0, 0.0, 3.0]),
            [1.0 / 3.0; 3],
            "zeros are no reference"
        );
        assert_eq!(weights(&[10], &[1e9]), [1.0]);
    }

    #[test]
    fn updates_that_say_nothing_leave_the_others_their_change() {
        for silent in [0.0, 1e-30, 1e-3, 0.1] {
            for (clients, silents) in [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3), (8, 4)] {
                let values: Vec<f64> = (0..clients)
                    .map(|at| if at < silents { silent } else { 1.0 + 0.05 * at as f64 })
                    .collect();
                for before in [None, Some(0.6), Some(1.0)] {
                    let reference = reference(&values, before);
                    let norms = Norms {
                        values: values.clone(),
                        reference,
                    };
                    let parts = Limits::default().parts(&vec![100; clients], Some(&norms));
                    let whole = parts.iter().all(|part| part.examples == 100.0 && part.scale == 1.0);
                    assert!(whole, "{silents} of {clients} with {silent}, {before:?}: {parts:?}");
                }
            }
        }
        // Most say nothing: a training client that misses a round does not cost the others theirs.
        assert_eq!(reference(&[1e-9, 1e-9, 1.0], Some(1.0)), Some(0.5));
        assert_eq!(reference(&[0.0, 0.0, 1.0], Some(1.0)), Some(1.0));
    }

    #[test]
    fn without_a_majority_the_reference_follows_the_rounds_before() {
        assert_eq!(reference(&[1.0, 5.0, 1e9], None), Some(5.0));
        assert_eq!(reference(&[1e9], Some(3.0)), Some(6.0));
        assert_eq!(reference(&[1e-9, 1e-9], Some(3.0)), Some(1.5));
        assert_eq!(reference(&[0.0, 0.0, 0.0], Some(3.0)), Some(3.0));
        assert_eq!(reference(&[0.0], None), None);
    }

    #[test]
    fn an_evaluation_weighs_no_more_than_the_others_allow() {
        assert_eq!(evaluation_weights(&[20, 20, 20, 1 << 40]), [20, 20, 20, 40]);
        assert_eq!(evaluation_weights(&[7]), [7]);
        assert_eq!(evaluation_weights(&[]), [0; 0]);
    }

    fn metrics(reports: &[(f64, f64)]) -> Vec<Metric> {
        let metric = |&(value, weight): &(f64, f64)| Metric { value, weight };
        reports.iter().map(metric).collect()
    }

    #[test]
    fn metrics_of_clients_that_are_much_alike_count_as_they_claim() {
        let of = |reports: &[(f64, f64)]| mean_metric(&metrics(reports));
        assert_eq!(of(&[(0.7, 123.0)]), 0.7);
        assert_eq!(of(&[(0.0, 1.0), (1.0, 3.0)]), 0.75);
        for unit in [1.0, 1e9, 1e-9] {
            let mean = of(&[(0.0, 60.0 * unit), (0.5, 60.0 * unit), (-1.0, 30.0 * unit)]);
            assert!(mean.abs() < 1e-12, "whatever the unit of the weights: {mean}");
        }
        assert_eq!(
            of(&[(0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (1.0, 1.0)]),
            0.25,
            "zeros are no reference"
        );
        assert!(of(&[(f64::MAX, 1e300), (f64::MAX, 1e300), (f64::MAX, 1e300)]) > 1.797e308);
    }

    #[test]
    fn one_client_of_four_does_not_decide_a_metric() {
        for weight in [100.0, 1e12, 1e300] {
            let of = |value: f64| mean_metric(&metrics(&[(0.5, 100.0), (0.5, 100.0), (0.5, 100.0), (value, weight)]));
            assert!((of(0.0) - 0.5).abs() <= 0.4 * 0.5 + 1e-12, "{weight}: {}", of(0.0));
            for value in [1e30, f64::MAX, -f64::MAX] {
                // Two fifths of the weight, at forty times the others' magnitude.
                assert!(of(value).abs() <= 0.4 * 20.0 + 0.5, "{value} {weight}: {}", of(value));
            }
        }
    }

    /// Any norm, zero and the ends of the range among them.
    fn any_norm() -> impl Strategy<Value = f64> {
        prop_oneof![
            Just(0.0),
            Just(f64::MAX),
            (-30..30i32, 1.0..10.0f64).prop_map(|(exponent, value)| value * 10f64.powi(exponent))
        ]
    }

    proptest! {
        #[test]
        fn fewer_than_half_of_the_clients_cannot_raise_the_reference_above_the_largest_honest_norm(
            rounds in prop::collection::vec(
                (prop::collection::vec(any_norm(), 1..9), prop::collection::vec(any_norm(), 0..8)), 1..6),
        ) {
            let (mut before, mut largest) = (None, 0.0f64);
            for (honest, chosen) in rounds {
                largest = honest.iter().copied().fold(largest, f64::max);
                let speaks = honest.iter().any(|norm| *norm > 0.0);
                let smallest = honest.iter().copied().fold(f64::INFINITY, f64::min);
                let fewer = honest.len() - 1;
                let values: Vec<f64> = honest.into_iter().chain(chosen.into_iter().take(fewer)).collect();
                before = reference(&values, before);
                let norms = Norms { values, reference: before };
                prop_assert!(before.is_none_or(|reference| reference <= largest), "{norms:?}, {largest}");
                prop_assert!(!speaks || norms.limit() <= largest, "{norms:?}, {largest}");
                // Nor can they lower it below the smallest.
                prop_assert!(norms.values.len() < MAJORITY || norms.limit() >= smallest, "{norms:?}, {smallest}");
            }
        }

        #[test]
        fn a_mean_of_metrics_is_within_their_range_and_order_does_not_matter(
            reports in prop::collection::vec((-1e3..1e3f64, 1e-3..1e6f64), 1..9),
            turn in 0usize..9,
        ) {
            let mean = mean_metric(&metrics(&reports));
            let values = || reports.iter().map(|report| report.0);
            let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(-f64::INFINITY, f64::max));
            prop_assert!((low - 1e-9..=high + 1e-9).contains(&mean), "{mean} of {low} to {high}");
            let mut turned = reports.clone();
            turned.rotate_left(turn % reports.len());
            turned.reverse();
            prop_assert!((mean_metric(&metrics(&turned)) - mean).abs() <= 1e-9);
        }

        #[test]
        fn any_metrics_have_a_finite_mean(
            reports in prop::collection::vec((any::<f64>(), any::<f64>()), 1..6),
        ) {
            let valid = |&(value, weight): &(f64, f64)| value.is_finite() && weight > 0.0 && weight.is_finite();
            let reports: Vec<_> = reports.into_iter().filter(valid).collect();
            prop_assume!(!reports.is_empty());
            prop_assert!(mean_metric(&metrics(&reports)).is_finite());
        }

        #[test]
        fn no_update_has_more_than_its_share_and_order_does_not_matter(
            examples in prop::collection::vec(1..=1u64 << 40, 3..9),
            exponents in prop::collection::vec(-40..40i32, 9),
        ) {
            let values: Vec<f64> = exponents.iter().take(examples.len()).map(|e| 10f64.powi(*e)).collect();
            let parts = weights(&examples, &values);
            prop_assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)));
            let moved: Vec<f64> = parts.iter().zip(&values).map(|(part, norm)| part * norm).collect();
            let reference = reference(&values, None).unwrap();
            let speaks = |at: &usize| moved[*at] > 0.0 && 4.0 * values[*at] >= reference;
            let mut positive: Vec<f64> = (0..moved.len()).filter(speaks).map(|at| moved[at]).collect();
            positive.sort_by(f64::total_cmp);
            if positive.len() >= MAJORITY {
                let sum: f64 = positive.iter().sum();
                let largest = positive[positive.len() - 1];
                let floor = median(&positive).unwrap();
                prop_assert!(largest <= (0.4 * sum).max(floor) * (1.0 + 1e-9), "{moved:?}");
            }
            let back = |values: &[f64]| values.iter().rev().copied().collect::<Vec<_>>();
            let reversed: Vec<u64> = examples.iter().rev().copied().collect();
            for (one, other) in weights(&reversed, &back(&values)).iter().rev().zip(&parts) {
                prop_assert!((one - other).abs() <= 1e-9 * other.max(1e-300));
            }
        }
    }
}
