//! An open round.

use std::collections::{BTreeMap, BTreeSet};

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::clock::Millis;
use crate::state_machine::presence::Presence;
use crate::storage::record::Accepted;

/// An open round.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Its number, from 1: it trains from version `number - 1`.
    pub number: u64,
    /// 1, and one more each time that its deadline passed with too few answers.
    pub attempt: u32,
    /// The attempt from which retries are counted: that of the last start after a failure.
    pub first: u32,
    /// Clients asked; holds every client in `updates`.
    pub cohort: BTreeSet<ClientId>,
    /// When the first attempt opened.
    pub opened: Millis,
    /// When this attempt opened or was resumed: grace never counts from before.
    pub since: Millis,
    /// When this attempt is given up.
    pub deadline: Millis,
    /// What was accepted.
    pub updates: BTreeMap<ClientId, Accepted>,
    /// While closing: whether the plan's limits apply.
    pub limited: bool,
    /// Clients that have no more part in it, with the update that was accepted of them, if one was.
    pub excluded: BTreeMap<ClientId, Option<Digest>>,
    /// Of each client in `cohort`, the attempt since which it has been asked without a break: an update that was begun
    /// in another attempt is refused for ever.
    pub asked_in: BTreeMap<ClientId, u32>,
    /// Clients that were replaced in this round at some time.
    pub replaced: BTreeSet<ClientId>,
    /// Clients in `cohort` that are absent, and in whose place others were asked. Their updates still count.
    pub excused: BTreeSet<ClientId>,
}

impl Round {
    /// When `target` updates were in, if they are: the moment from which grace counts.
    pub fn reached(&self, target: usize) -> Option<Millis> {
        let nth = target.max(1) - 1;
        if nth >= self.updates.len() {
            return None;
        }
        let mut times: Vec<Millis> = self.updates.values().map(|update| update.at).collect();
        let (_, &mut at, _) = times.select_nth_unstable(nth);
        Some(at.max(self.since))
    }

    /// Clients asked that have not answered, in order.
    pub fn missing(&self) -> impl Iterator<Item = &ClientId> {
        self.cohort.iter().filter(|client| !self.updates.contains_key(*client))
    }

    /// Those of them in whose place nobody was asked.
    pub(super) fn unexcused(&self) -> impl Iterator<Item = &ClientId> {
        self.missing().filter(|client| !self.excused.contains(*client))
    }

    /// Clients whose answers the round waits for: asked, not excused, and not lost at `now`.
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
