//! Budgets with which a cohort finishes together (EDGC's DAC, arXiv 2511.10333, for clients in place of pipeline stages).
//! Pure arithmetic on integers: microseconds, bytes and bytes a second.
//!
//! A client's part of a round takes `T_i(b) = wait_i + (b + overhead_i) / rate_i` for a frame of `b` bytes. [`aligned`] finds
//! the finish time T at which the budgets `b_i = rate_i * (T - wait_i) - overhead_i`, each within its clamps, have the same
//! total as equal budgets. So a cohort sends as many bytes as without alignment, and its slowest client is done earlier.
//!
//! Until a clamp binds, no budgets of the same total finish earlier: at an earlier T each budget would be smaller.

const MICROS: u128 = 1_000_000;
/// Share of T, in percent, by which clients may finish earlier or later before budgets change.
const HYSTERESIS: u128 = 10;
/// Share of the total, in percent, that budgets must have to be kept.
const ENOUGH: u128 = 97;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Microseconds from the task to the first byte of the upload: the model's way, training, encoding and the round trip.
    pub wait: u64,
    /// Bytes of an upload beside its frame.
    pub overhead: u64,
    /// Goodput in bytes a second, at least 1.
    pub rate: u64,
    /// Budget of its last update.
    pub last: u64,
}

impl Part {
    /// Microseconds that the part takes with a frame of `bytes`.
    pub(super) fn finish(&self, bytes: u64) -> u64 {
        let bytes = u128::from(bytes) + u128::from(self.overhead);
        let way = (bytes * MICROS).div_ceil(u128::from(self.rate.max(1)));
        u64::try_from(way).unwrap_or(u64::MAX).saturating_add(self.wait)
    }

    /// Largest number of steps of `marginal` bytes each that finishes by `finish`, within `least` and `most`: `least` if the
    /// client cannot finish by then at all.
    pub(super) fn steps(&self, finish: u64, marginal: u64, (least, most): (u64, u64)) -> u64 {
        let left = u128::from(finish.saturating_sub(self.wait));
        let bytes = (left * u128::from(self.rate) / MICROS).saturating_sub(u128::from(self.overhead));
        let steps = bytes / u128::from(marginal.max(1));
        u64::try_from(steps).unwrap_or(u64::MAX).max(least).min(most)
    }
}

/// Bounds of each budget, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clamps {
    /// Budget of each client without alignment.
    pub reference: u64,
    pub least: u64,
    pub most: u64,
    pub step: u64,
}

impl Clamps {
    /// The bounds of a client whose last budget was `last`. Those of the step do not leave the others.
    fn of(&self, last: u64) -> (u64, u64) {
        let most = self.most.max(self.least);
        [last.saturating_sub(self.step), last.saturating_add(self.step)]
            .map(|budget| budget.clamp(self.least, most))
            .into()
    }
}

/// The budget of each client. Their total is that of equal budgets, `clamps.reference` each, up to what T cannot resolve; it is
/// smaller or larger if the clamps leave no other choice. The last budgets are kept if all clients would finish within 10 % of
/// T and the total is met to 97 %.
///
/// The budget of a client with a higher rate is never smaller than that of one which is like it otherwise.
pub(super) fn aligned(parts: &[Part], clamps: &Clamps) -> Vec<u64> {
    let bounds: Vec<(u64, u64)> = parts.iter().map(|part| clamps.of(part.last)).collect();
    let total = u128::from(clamps.reference) * parts.len() as u128;
    // The latest T with no more than the total. Budgets do not change beyond `end`.
    let ends = parts.iter().zip(&bounds).map(|(part, (_, most))| part.finish(*most));
    let mut fits = 0;
    let mut passes = ends.max().unwrap_or(0).saturating_add(1);
    while passes - fits > 1 {
        let middle = fits + (passes - fits) / 2;
        if sum(budgets_at(middle, parts, &bounds)) <= total {
            fits = middle;
        } else {
            passes = middle;
        }
    }
    let last = parts.iter().map(|part| part.last);
    let kept = sum(last.clone());
    let are_near = parts.iter().all(|part| {
        let gap = u128::from(part.finish(part.last).abs_diff(fits));
        100 * gap <= HYSTERESIS * u128::from(fits)
    });
    if kept <= total && 100 * kept >= ENOUGH * total && are_near {
        return last.collect();
    }
    budgets_at(fits, parts, &bounds).collect()
}

/// The budgets with which each part finishes at `finish`, within its bounds.
fn budgets_at(finish: u64, parts: &[Part], bounds: &[(u64, u64)]) -> impl Iterator<Item = u64> {
    let parts = parts.iter().zip(bounds);
    parts.map(move |(part, bounds)| part.steps(finish, 1, *bounds))
}

fn sum(budgets: impl Iterator<Item = u64>) -> u128 {
    budgets.map(u128::from).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(mbit: f64, wait_s: f64) -> Part {
        Part {
            wait: (wait_s * 1e6) as u64,
            overhead: 0,
            rate: (mbit * 125_000.0) as u64,
            last: 0,
        }
    }

    const FREE: Clamps = Clamps {
        reference: 70_000,
        least: 0,
        most: u64::MAX,
        step: u64::MAX,
    };

    /// Low rank of a 512 by 512 matrix: 32,768 bits a rank, at most 64 and at least 8.
    #[test]
    fn ranks_of_the_worked_example() {
        let clients = [part(1.0, 2.1), part(4.0, 3.05), part(16.0, 1.02)];
        let ranks = |finish: u64, most: u64| clients.map(|client| client.steps(finish, 4_096, (8, most)));
        assert_eq!(ranks(3_500_000, u64::MAX), [42, 54, 1210]);
        assert_eq!(ranks(3_500_000, 64), [42, 54, 64]);
        // The second client is not even done with training.
        assert_eq!(ranks(2_500_000, 64), [12, 8, 64]);
    }

    #[test]
    fn budgets_follow_the_links_and_keep_the_total() {
        let clients = [part(1.0, 0.0), part(4.0, 0.0), part(16.0, 0.0)];
        let budgets = aligned(&clients, &FREE);
        assert_eq!(budgets, [10_000, 40_000, 160_000]);
        let finish = |budgets: &[u64]| {
            clients
                .iter()
                .zip(budgets)
                .map(|(client, bytes)| client.finish(*bytes))
                .max()
        };
        assert_eq!(finish(&budgets), Some(80_000));
        assert_eq!(finish(&[70_000; 3]), Some(560_000));
    }

    #[test]
    fn a_budget_moves_by_at_most_a_step_and_stays_if_all_are_near() {
        let last = |mbit, last| Part {
            last,
            ..part(mbit, 0.0)
        };
        let clamps = Clamps { step: 70_000, ..FREE };
        let mut clients = [1.0, 4.0, 16.0].map(|mbit| last(mbit, 70_000));
        let first = aligned(&clients, &clamps);
        assert_eq!(first, [14_000, 56_000, 140_000]);
        clients
            .iter_mut()
            .zip(&first)
            .for_each(|(client, budget)| client.last = *budget);
        let second = aligned(&clients, &clamps);
        assert_eq!(second, [10_000, 40_000, 160_000]);
        clients
            .iter_mut()
            .zip(&second)
            .for_each(|(client, budget)| client.last = *budget);
        clients[2].rate = clients[2].rate * 105 / 100;
        assert_eq!(aligned(&clients, &clamps), second);
        clients[2].rate = clients[2].rate * 120 / 100;
        assert!(aligned(&clients, &clamps)[2] > second[2]);
    }

    #[test]
    fn a_client_that_trains_beyond_the_others_gets_the_least() {
        let clamps = Clamps { least: 9_000, ..FREE };
        let budgets = aligned(&[part(1.0, 60.0), part(4.0, 0.0), part(4.0, 0.0)], &clamps);
        assert_eq!(budgets, [9_000, 100_500, 100_500]);
        assert_eq!(aligned(&[], &clamps), [0; 0]);
    }

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        let part = (0u64..20_000_000, 0u64..2_000, 1_000u64..10_000_000, 0u64..200_000);
        let part = part.prop_map(|(wait, overhead, rate, last)| Part {
            wait,
            overhead,
            rate,
            last,
        });
        proptest::collection::vec(part, 1..20)
    }

    proptest! {
        #[test]
        fn budgets_do_not_fall_with_the_rate_and_equal_clients_have_equal_ones(
            mut parts in parts(), more in 0u64..5_000_000, step in 1u64..100_000
        ) {
            let clamps = Clamps { reference: 50_000, least: 5_000, most: 400_000, step };
            let first = parts[0];
            parts.push(first);
            parts.push(Part { rate: first.rate + more, ..first });
            let budgets = aligned(&parts, &clamps);
            prop_assert_eq!(&budgets, &aligned(&parts, &clamps));
            prop_assert_eq!(budgets[0], budgets[parts.len() - 2]);
            prop_assert!(budgets[parts.len() - 1] >= budgets[0]);
        }

        #[test]
        fn budgets_are_within_their_clamps_and_no_more_than_the_total_if_possible(
            parts in parts(), step in 1u64..100_000
        ) {
            let clamps = Clamps { reference: 50_000, least: 5_000, most: 400_000, step };
            let budgets = aligned(&parts, &clamps);
            for (part, budget) in parts.iter().zip(&budgets) {
                let (least, most) = clamps.of(part.last);
                let is_kept = *budget == part.last;
                prop_assert!(is_kept || (least..=most).contains(budget));
            }
            let total: u64 = budgets.iter().sum();
            let least: u64 = parts.iter().map(|part| clamps.of(part.last).0).sum();
            prop_assert!(total <= (50_000 * parts.len() as u64).max(least));
        }

        #[test]
        fn a_cohort_finishes_no_later_than_with_equal_budgets_of_the_same_total(parts in parts()) {
            let clamps = Clamps { least: 0, most: u64::MAX, step: u64::MAX, reference: 5_000_000 };
            // Nobody is late even without a value, so no clamp binds.
            let early = |part: Part| Part { wait: part.wait % 100_000, rate: part.rate.max(20_000), last: 0, ..part };
            let parts: Vec<Part> = parts.into_iter().map(early).collect();
            let budgets = aligned(&parts, &clamps);
            prop_assert!(budgets.iter().all(|budget| *budget > 0));
            let total: u64 = budgets.iter().sum();
            let equal = total / parts.len() as u64;
            let last = |budget: &dyn Fn(usize) -> u64| {
                parts.iter().enumerate().map(|(at, part)| part.finish(budget(at))).max().unwrap_or(0)
            };
            let one_byte = parts.iter().map(|part| part.finish(1) - part.finish(0)).max().unwrap_or(0);
            prop_assert!(last(&|at| budgets[at]) <= last(&|_| equal) + one_byte + 1);
            // What is left of the total is less than a microsecond moves.
            let rates: u64 = parts.iter().map(|part| part.rate).sum();
            prop_assert!(5_000_000 * parts.len() as u64 - total <= rates / 1_000_000 + parts.len() as u64);
        }
    }
}
