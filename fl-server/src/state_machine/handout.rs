//! The budgets that a round hands out with its task.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::ClientId;

use crate::clock::Millis;
use crate::config::plan::{Handout, RunPlan};
use crate::state_machine::align::{Clamps, aligned};
use crate::state_machine::round::Round;
use crate::state_machine::state::State;
use crate::state_machine::uplinks::{Uplink, parts};
use crate::storage::record::Record;

/// The budgets of the clients that `records` ask, if the plan hands out any.
pub(super) fn handed_out(state: &State, plan: &RunPlan, now: Millis, records: &[Record]) -> Option<Record> {
    let handout = plan.handout.as_ref()?;
    let (round, asked) = records.iter().rev().find_map(|record| match record {
        Record::RoundOpened { round, cohort, .. } => Some((*round, cohort)),
        Record::MembersReplaced { round, by, .. } => Some((*round, by)),
        _ => None,
    })?;
    let open = state
        .round()
        .or(state.held.as_ref())
        .filter(|open| open.number == round);
    let answered = |client: &&ClientId| open.is_some_and(|open| open.updates.contains(client));
    let asked: Vec<&ClientId> = asked.iter().filter(|client| !answered(client)).collect();
    let budgets = match handout.run {
        Some(total) => {
            let left = (state.last_round(plan) + 1).saturating_sub(round);
            spread(state, handout, (total, left), &asked)
        }
        None => aligned_over(state, handout, open, &asked),
    };
    (!budgets.is_empty()).then_some(Record::BudgetsSet {
        round,
        budgets,
        at: now,
    })
}

/// What is left of each client's budget for the run, in equal shares for the rounds that are left. A client whose share is that
/// of the plan needs no budget of its own.
fn spread(
    state: &State,
    handout: &Handout,
    (total, rounds_left): (u64, u64),
    asked: &[&ClientId],
) -> BTreeMap<ClientId, u64> {
    let share = |client: &ClientId| {
        let left = total.saturating_sub(state.uplink(client).sent);
        (left / rounds_left.max(1)).min(handout.most)
    };
    let budgets = asked.iter().map(|client| ((*client).clone(), share(client)));
    budgets.filter(|(_, budget)| *budget != handout.reference).collect()
}

/// Budgets with which the clients finish together; none before a member of the cohort was measured.
fn aligned_over(
    state: &State,
    handout: &Handout,
    open: Option<&Round>,
    asked: &[&ClientId],
) -> BTreeMap<ClientId, u64> {
    let others = open.into_iter().flat_map(|open| &*open.cohort);
    let cohort: BTreeSet<&ClientId> = others.chain(asked.iter().copied()).collect();
    let cohort: Vec<Uplink> = cohort.into_iter().map(|client| state.uplink(client)).collect();
    let uplinks: Vec<Uplink> = asked.iter().map(|client| state.uplink(client)).collect();
    let clamps = Clamps {
        reference: handout.reference,
        least: handout.least,
        most: handout.most,
        step: handout.reference,
    };
    let Some(parts) = parts(&uplinks, &cohort, handout.reference) else {
        return BTreeMap::new();
    };
    let named = asked.iter().map(|client| (*client).clone());
    named.zip(aligned(&parts, &clamps)).collect()
}
