//! The baseline: what federated averaging of fp32 values would have moved for the comparable rounds of a run.
//!
//! A round moves bytes twice: its updates while it is open, and its model in the next round. So a closed round is compared
//! once a later one has closed, and the last round once the run is done. The baseline is divided by all bytes of the run's
//! sockets. While the run goes on, these include bytes of rounds that are not compared yet, so the ratio of a run with rounds
//! of equal cost never exceeds its final value.

/// A round, as far as the baseline depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Round {
    pub(crate) round: u64,
    pub(crate) closed: bool,
    pub(crate) asked: u64,
    pub(crate) updates: u64,
}

/// Models that federated averaging would have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BaselineModels {
    /// The newest round that is compared completely.
    pub(crate) through: u64,
    pub(crate) up: u64,
    pub(crate) down: u64,
}

/// How a run ended, as far as the baseline depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RunEnd {
    /// Clients that fetched the last model only to evaluate it.
    pub(crate) evaluated: u64,
    /// Models that are left out while clients are connected: see [`withheld`].
    pub(crate) withheld: u64,
}

/// The models of the comparable rounds; `rounds` are in order. `done`: how the run ended, if it has.
///
/// Federated averaging sends a model down to every client asked and one up for every update; after the last round, one more
/// down to every client that evaluates it.
pub(crate) fn compared(rounds: impl IntoIterator<Item = Round>, done: Option<RunEnd>) -> BaselineModels {
    let mut sum = BaselineModels::default();
    let mut newest: Option<Round> = None;
    for round in rounds.into_iter().filter(|round| round.closed) {
        if let Some(before) = newest.replace(round) {
            sum.up = sum.up.saturating_add(before.updates);
            sum.down = sum.down.saturating_add(before.asked);
            sum.through = before.round;
        }
    }
    let (Some(done), Some(last)) = (done, newest) else {
        return sum;
    };
    let down = last.asked.saturating_add(done.evaluated);
    let left = done.withheld.saturating_sub(down);
    sum.down = sum.down.saturating_add(down.saturating_sub(done.withheld));
    sum.up = sum.up.saturating_add(last.updates.saturating_sub(left));
    if done.withheld == 0 {
        sum.through = last.round;
    }
    sum
}

/// Models that the baseline of a finished run leaves out while clients are connected, given for each the newest version that
/// its sockets have carried. A client with the `last` version still closes its connection, which costs less than a model; a
/// client without it still fetches it.
pub(crate) fn withheld(connected: impl IntoIterator<Item = Option<u64>>, last: u64) -> u64 {
    let has_last = connected
        .into_iter()
        .map(|version| version.is_some_and(|held| held >= last));
    has_last.map(|has_last| if has_last { 1 } else { 2 }).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round(round: u64, closed: bool, asked: u64, updates: u64) -> Round {
        Round {
            round,
            closed,
            asked,
            updates,
        }
    }

    #[test]
    fn a_round_is_compared_once_another_has_closed_after_it_and_the_last_once_the_run_is_done() {
        let (one, two) = (round(1, true, 3, 2), round(2, true, 4, 4));
        let (open, sum) = (round(2, false, 4, 3), |through, up, down| BaselineModels {
            through,
            up,
            down,
        });
        assert_eq!(compared([one], None), BaselineModels::default());
        assert_eq!(compared([one, open], None), BaselineModels::default());
        assert_eq!(compared([one, two], None), sum(1, 2, 3));
        assert_eq!(compared([one, two], Some(RunEnd::default())), sum(2, 6, 7));
        let done = |evaluated, withheld| Some(RunEnd { evaluated, withheld });
        assert_eq!(compared([one, two], done(4, 0)), sum(2, 6, 11));
        assert_eq!(compared([one, two], done(4, 4)), sum(1, 6, 7));
        assert_eq!(compared([one, two], done(0, 6)), sum(1, 4, 3));
        assert_eq!(compared([one, two], done(0, u64::MAX)), sum(1, 2, 3));
        assert_eq!(withheld([Some(2), Some(1), None], 2), 5);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Every client joins, and then sends and fetches one thing after another. Whatever these cost, and wherever the run
        /// is looked at, its ratio is no higher than in the end.
        #[test]
        fn the_ratio_of_a_run_never_exceeds_its_final_one(
            (rounds, clients, evaluates) in (1_u64..8, 1_u64..5, any::<bool>()),
            (join, up, down, goodbye) in (0_u64..10_000, 1_u64..5_000, 1_u64..5_000, 0_u64..400),
        ) {
            let goodbye = goodbye.min(up.min(down));
            let mut looks = Vec::new();
            let mut moved = clients * join;
            let mut seen = Vec::new();
            let mut look = |moved: u64, rounds: &[Round], done| {
                let sum = compared(rounds.iter().copied(), done);
                looks.push((sum.up + sum.down) as f64 / moved.max(1) as f64);
            };
            for number in 1..=rounds {
                seen.push(round(number, false, clients, 0));
                for _ in 0..clients {
                    // The first model needs no download where it is made from a seed.
                    moved += if number > 1 { down } else { 0 };
                    look(moved, &seen, None);
                }
                for n in 1..=clients {
                    moved += up;
                    seen[number as usize - 1].updates = n;
                    look(moved, &seen, None);
                }
                seen[number as usize - 1].closed = true;
                look(moved, &seen, None);
            }
            let evaluated = if evaluates { clients } else { 0 };
            for fetched in 0..=clients {
                moved += if fetched > 0 { down } else { 0 };
                let held = (0..clients).map(|n| Some(if n < fetched { rounds } else { rounds - 1 }));
                let done = RunEnd { evaluated, withheld: withheld(held, rounds) };
                // Those that evaluate the last model have it before the run is done.
                if !evaluates || fetched == clients {
                    look(moved, &seen, Some(done));
                }
            }
            for staying in (0..clients).rev() {
                moved += goodbye;
                let done = RunEnd { evaluated, withheld: withheld(vec![Some(rounds); staying as usize], rounds) };
                look(moved, &seen, Some(done));
            }
            let last = looks.last().copied().unwrap_or_default();
            prop_assert!(looks.iter().all(|ratio| *ratio <= last), "{:?}", looks);
        }
    }
}
