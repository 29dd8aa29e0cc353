//! An open round.

use std::collections::{BTreeMap, BTreeSet};

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::clock::Millis;
use crate::state_machine::presence::Presence;
use crate::storage::record::{Accepted, Transfer};

/// An open round.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// From 1; the round trains from version `number - 1`.
    pub number: u64,
    /// From 1; one more each time that the deadline passed with too few answers.
    pub attempt: u32,
    /// The attempt from which retries are counted: the first, or the first since the run failed.
    pub first: u32,
    /// Clients asked, among them every client in `updates`.
    pub cohort: BTreeSet<ClientId>,
    /// When the first attempt opened.
    pub opened: Millis,
    /// When this attempt opened or was resumed: grace counts from here at the earliest.
    pub since: Millis,
    pub deadline: Millis,
    pub updates: BTreeMap<ClientId, Accepted>,
    /// While closing: whether the plan's limits apply.
    pub limited: bool,
    /// Excluded clients, each with its update if one was accepted.
    pub excluded: BTreeMap<ClientId, Option<Digest>>,
    /// For each client in `cohort`, the attempt since which it is asked without interruption: an update that was begun in
    /// another attempt is refused for good.
    pub asked_in: BTreeMap<ClientId, u32>,
    /// Clients that were replaced in this round.
    pub replaced: BTreeSet<ClientId>,
    /// Absent clients in `cohort` that have been replaced. Their updates still count.
    pub excused: BTreeSet<ClientId>,
    /// Most bytes of an update, by client, in place of the plan's budget.
    pub budgets: BTreeMap<ClientId, u64>,
    /// How the uploads of `updates` went, where that was measured.
    pub transfers: BTreeMap<ClientId, Transfer>,
}

impl Round {
    /// When the round had `target` updates, if it has them: grace counts from there.
    pub fn reached(&self, target: usize) -> Option<Millis> {
        let nth = target.max(1) - 1;
        if nth >= self.updates.len() {
            return None;
        }
        let mut times: Vec<Millis> = self.updates.values().map(|update| update.at).collect();
        let (_, &mut at, _) = times.select_nth_unstable(nth);
        Some(at.max(self.since))
    }

    /// Clients asked that have not answered, by name.
    pub fn missing(&self) -> impl Iterator<Item = &ClientId> {
        self.cohort.iter().filter(|client| !self.updates.contains_key(*client))
    }

    /// Missing clients without a replacement.
    pub(super) fn unexcused(&self) -> impl Iterator<Item = &ClientId> {
        self.missing().filter(|client| !self.excused.contains(*client))
    }

    /// Clients that the round waits for: missing, not excused, and not lost at `now`.
    pub fn waited_for(&self, presence: &Presence, absent: Millis, now: Millis) -> impl Iterator<Item = &ClientId> {
        let lost = move |client: &ClientId| self.lost_at(client, presence, absent).is_some_and(|at| at <= now);
        self.unexcused().filter(move |client| !lost(client))
    }

    /// As [`Presence::lost_at`], of a member of this round.
    pub(super) fn lost_at(&self, client: &ClientId, presence: &Presence, absent: Millis) -> Option<Millis> {
        if presence.is_sitting_out(client, self.number) {
            return Some(0);
        }
        presence.lost_at(client, self.since, absent)
    }

    /// Connected clients that can be asked in place of members of this round.
    pub(super) fn substitutes<'a>(&'a self, presence: &'a Presence) -> impl Iterator<Item = &'a ClientId> {
        let others = |client: &&ClientId| !self.cohort.contains(*client) && !self.excluded.contains_key(*client);
        let candidates = presence.connected().iter().filter(others);
        candidates.filter(|client| !presence.is_sitting_out(client, self.number))
    }
}
