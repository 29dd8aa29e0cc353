//! The budgets and bandwidths that a round hands out with its task.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::ClientId;

use crate::clock::Millis;
use crate::config::plan::{Handout, RunPlan};
use crate::state_machine::align::{Clamps, aligned};
use crate::state_machine::round::Round;
use crate::state_machine::state::State;
use crate::state_machine::uplinks::{Uplink, parts, usual_rate};
use crate::storage::record::Record;

/// The budgets and the bandwidths of the clients that `records` ask, if the plan hands out any.
pub(super) fn handed_out(state: &State, plan: &RunPlan, now: Millis, records: &[Record]) -> Vec<Record> {
    let opened = records.iter().rev().find_map(|record| match record {
        Record::RoundOpened { round, cohort, .. } => Some((*round, cohort)),
        Record::MembersReplaced { round, by, .. } => Some((*round, by)),
        _ => None,
    });
    let Some((round, asked)) = opened else {
        return Vec::new();
    };
    let open = state.unclosed().filter(|open| open.number == round);
    let asked = asked.iter();
    let asked: Vec<&ClientId> = asked
        .filter(|client| open.is_none_or(|open| !open.updates.contains(client)))
        .collect();
    let budgets = plan.handout.as_ref().map(|handout| match handout.run {
        Some(total) => {
            let left = (state.last_round(plan) + 1).saturating_sub(round);
            spread(state, handout, total, left, &asked)
        }
        None => aligned_over(state, handout, open, &asked),
    });
    let bandwidths = plan.uplink.wants_bandwidth().then(|| over_median(state, open, &asked));
    let mut out = Vec::new();
    if let Some(budgets) = budgets.filter(|budgets| !budgets.is_empty()) {
        out.push(Record::BudgetsSet {
            round,
            budgets,
            at: now,
        });
    }
    if let Some(bandwidths) = bandwidths.filter(|bandwidths| !bandwidths.is_empty()) {
        out.push(Record::BandwidthsSet {
            round,
            bandwidths,
            at: now,
        });
    }
    out
}

/// What is known of the uplinks of a round's cohort and of the clients that are `asked`.
fn uplinks_of(state: &State, open: Option<&Round>, asked: &[&ClientId]) -> Vec<Uplink> {
    let others = open.into_iter().flat_map(|open| &*open.cohort);
    let cohort: BTreeSet<&ClientId> = others.chain(asked.iter().copied()).collect();
    cohort.into_iter().map(|client| state.uplink(client)).collect()
}

/// The rate of each client's uploads over the median of the cohort; none of a client that was not measured.
fn over_median(state: &State, open: Option<&Round>, asked: &[&ClientId]) -> BTreeMap<ClientId, u32> {
    let Some(usual) = usual_rate(&uplinks_of(state, open, asked)) else {
        return BTreeMap::new();
    };
    asked
        .iter()
        .filter_map(|client| Some(((*client).clone(), state.uplink(client).over(usual)?)))
        .collect()
}

/// What is left of each client's budget for the run, in equal shares for the rounds that are left. A client whose share is that
/// of the plan needs no budget of its own.
fn spread(
    state: &State,
    handout: &Handout,
    total: u64,
    rounds_left: u64,
    asked: &[&ClientId],
) -> BTreeMap<ClientId, u64> {
    let budgets = asked.iter().map(|client| {
        let left = total.saturating_sub(state.uplink(client).sent);
        let share = (left / rounds_left.max(1)).min(handout.most);
        ((*client).clone(), share)
    });
    budgets.filter(|(_, budget)| *budget != handout.reference).collect()
}

/// Budgets with which the clients finish together; none before a member of the cohort was measured.
fn aligned_over(
    state: &State,
    handout: &Handout,
    open: Option<&Round>,
    asked: &[&ClientId],
) -> BTreeMap<ClientId, u64> {
    let cohort = uplinks_of(state, open, asked);
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
