//! When a round opens, and with which clients.

use std::collections::BTreeSet;

use fl_proto::ClientId;

use crate::clock::Millis;
use crate::config::plan::RunPlan;
use crate::state_machine::presence::Presence;
use crate::state_machine::round::Round;
use crate::state_machine::select::select;
use crate::state_machine::state::State;
use crate::storage::record::Record;
use crate::telemetry::event::names;

/// While no round is open: opens one, or records that the minimum of clients was reached or lost.
pub(super) fn waiting(state: &State, plan: &RunPlan, now: Millis, presence: &Presence) -> Vec<Record> {
    let held = state.held.as_ref();
    if held.is_none() && state.depth() >= plan.rounds {
        return vec![Record::RunDone { at: now }];
    }
    let number = held.map_or(state.version() + 1, |round| round.number);
    opening(state, plan, now, presence, number, held, state.gathered)
        .into_iter()
        .collect()
}

/// In the decision that closes `round`: the next round, if enough clients are connected, or the end of the run.
pub(super) fn after_close(
    state: &State,
    plan: &RunPlan,
    now: Millis,
    presence: &Presence,
    round: &Round,
) -> Option<Record> {
    let version = round.number;
    if state.depth() + 1 < plan.rounds && !reached(state, plan, version - 1) {
        return opening(state, plan, now, presence, version + 1, None, None);
    }
    let until = now.saturating_add(plan.cohort.deadline);
    let asked = BTreeSet::clone(&round.cohort);
    Some(if plan.evaluate {
        Record::EvaluationOpened { version, asked, until }
    } else {
        Record::RunDone { at: now }
    })
}

/// Whether a version is as accurate as the run is to become, by at least `min` clients.
fn reached(state: &State, plan: &RunPlan, version: u64) -> bool {
    plan.stop_at.is_some_and(|least| {
        let seen = state
            .evaluations(version)
            .filter(|seen| seen.clients >= plan.cohort.min);
        seen.and_then(|seen| seen.accuracy())
            .is_some_and(|share| share >= least)
    })
}

/// After the deadline with too few answers: another attempt with other clients, or the failure of the run.
pub(super) fn reopening(round: &Round, plan: &RunPlan, now: Millis, presence: &Presence) -> Record {
    if round.attempt - round.first < plan.cohort.retries {
        let again = opened(plan, now, presence.available(), round.number, Some(round));
        // The cohort is empty if all clients are excluded.
        if matches!(&again, Record::RoundOpened { cohort, .. } if !cohort.is_empty()) {
            return again;
        }
    }
    let why = format!(
        "round {}: {} of {} clients answered in time, at least {} are needed; missing: {}",
        round.number,
        round.updates.len(),
        round.cohort.len(),
        plan.cohort.min,
        names(&round.missing().collect::<Vec<_>>()),
    );
    Record::RunFailed {
        round: round.number,
        why,
        at: now,
    }
}

fn opening(
    state: &State,
    plan: &RunPlan,
    now: Millis,
    presence: &Presence,
    number: u64,
    before: Option<&Round>,
    gathered: Option<Millis>,
) -> Option<Record> {
    let present = presence.available();
    let kept = before.map_or(0, |round| {
        round
            .updates
            .clients()
            .filter(|client| !present.contains(*client))
            .count()
    });
    let excluded = before.map_or(0, |round| {
        let clients = round.excluded.keys();
        clients.filter(|client| present.contains(*client)).count()
    });
    let together = present.len() + kept - excluded;
    if together < plan.cohort.min {
        return gathered.map(|_| Record::Gathered { since: None });
    }
    let since = gathered.unwrap_or(now);
    if together >= expected(state, plan, now, presence) || plan.cohort.grace_from(since) <= now {
        return Some(opened(plan, now, present, number, before));
    }
    gathered.is_none().then_some(Record::Gathered { since: Some(now) })
}

/// How many clients the run waits for, up to the time of grace: `min(size, clients available or gone for less than
/// `absent`)`. A client that is gone for longer has delayed a round already and delays no other. After a restart, when the
/// server has seen no client leave: the number connected when the last round opened, so that the cohort is the same as
/// without the restart.
fn expected(state: &State, plan: &RunPlan, now: Millis, presence: &Presence) -> usize {
    match state.present {
        0 => plan.cohort.size,
        present if state.restarted => present,
        _ => {
            let returning = presence.returning(now, plan.cohort.absent).count();
            plan.cohort.size.min(presence.available().len() + returning)
        }
    }
}

/// While a round is open and fewer than `target` clients have answered: asks others in place of members that are absent for
/// too long, as far as there are others.
pub(super) fn replacing(round: &Round, plan: &RunPlan, now: Millis, presence: &Presence) -> Option<Record> {
    if round.updates.len() >= plan.cohort.target {
        return None;
    }
    let losing = round.losing(presence, plan.cohort.absent);
    let lost = losing.filter(|(_, at)| *at <= now);
    let mut absent: BTreeSet<_> = lost.map(|(client, _)| client.clone()).collect();
    if absent.is_empty() {
        return None;
    }
    let by = select(
        round.substitutes(presence),
        absent.len(),
        plan.seed,
        round.number,
        round.attempt,
    );
    while absent.len() > by.len() {
        absent.pop_last();
    }
    (!by.is_empty()).then_some(Record::MembersReplaced {
        round: round.number,
        absent,
        by,
        at: now,
    })
}

fn opened(plan: &RunPlan, now: Millis, present: &BTreeSet<ClientId>, round: u64, before: Option<&Round>) -> Record {
    let attempt = before.map_or(1, |round| round.attempt.saturating_add(1));
    let deadline = now.saturating_add(plan.cohort.deadline);
    let cohort = cohort(plan, present, round, attempt, before);
    Record::RoundOpened {
        round,
        attempt,
        cohort,
        present: present.len() as u32,
        at: now,
        deadline,
    }
}

/// Whether exclusions left the round with fewer than `min` clients, and others could be asked in their place.
pub(super) fn lacks_members(round: &Round, plan: &RunPlan, present: &BTreeSet<ClientId>) -> bool {
    !round.excluded.is_empty()
        && round.cohort.len() < plan.cohort.min
        && present.iter().any(|client| round.can_ask(client))
}

/// The clients that have answered, then clients not asked before, then the missing ones, connected ones first.
fn cohort(
    plan: &RunPlan,
    present: &BTreeSet<ClientId>,
    round: u64,
    attempt: u32,
    before: Option<&Round>,
) -> BTreeSet<ClientId> {
    let Some(before) = before else {
        return select(present.iter(), plan.cohort.size, plan.seed, round, attempt);
    };
    let mut cohort: BTreeSet<ClientId> = before.updates.clients().cloned().collect();
    let new = present.iter().filter(|client| before.can_ask(client)).collect();
    let (back, away) = before.missing().partition(|client| present.contains(*client));
    let pools: [Vec<&ClientId>; 3] = [new, back, away];
    for pool in pools {
        let room = plan.cohort.size.saturating_sub(cohort.len());
        cohort.extend(select(pool.into_iter(), room, plan.seed, round, attempt));
    }
    cohort
}
