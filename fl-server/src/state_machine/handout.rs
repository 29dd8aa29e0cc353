//! The budgets that a round hands out with its task.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::ClientId;

use crate::clock::Millis;
use crate::config::plan::{Handout, RunPlan};
use crate::state_machine::align::{Clamps, aligned};
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
    let budgets = budgets(state, handout, round, asked)?;
    Some(Record::BudgetsSet {
        round,
        budgets,
        at: now,
    })
}

fn budgets(
    state: &State,
    handout: &Handout,
    round: u64,
    asked: &BTreeSet<ClientId>,
) -> Option<BTreeMap<ClientId, u64>> {
    let open = state
        .round()
        .or(state.held.as_ref())
        .filter(|open| open.number == round);
    let answered = |client: &&ClientId| open.is_some_and(|open| open.updates.contains_key(*client));
    let asked: Vec<&ClientId> = asked.iter().filter(|client| !answered(client)).collect();
    let others = open.into_iter().flat_map(|open| &open.cohort);
    let cohort: BTreeSet<&ClientId> = others.chain(asked.iter().copied()).collect();
    let of = |clients: &mut dyn Iterator<Item = &ClientId>| -> Vec<Uplink> {
        clients.map(|client| state.uplink(client)).collect()
    };
    let clamps = Clamps {
        reference: handout.reference,
        least: handout.least,
        most: handout.most,
        step: handout.reference,
    };
    let (asked_of, cohort) = (of(&mut asked.iter().copied()), of(&mut cohort.into_iter()));
    let parts = parts(&asked_of, &cohort, handout.reference)?;
    let named = asked.into_iter().cloned();
    let budgets: BTreeMap<ClientId, u64> = named.zip(aligned(&parts, &clamps)).collect();
    (!budgets.is_empty()).then_some(budgets)
}
