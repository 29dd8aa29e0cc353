//! An open round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::clock::Millis;
use crate::config::plan::Cohort;
use crate::state_machine::by_client::ByClient;
use crate::state_machine::presence::Presence;
use crate::storage::record::{Accepted, Transfer};

/// An open round. A copy takes constant time, but for the excluded clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// From 1; the round trains from version `number - 1`.
    pub number: u64,
    /// From 1; one more each time that the deadline passed with too few answers.
    pub attempt: u32,
    /// The attempt from which retries are counted: the first, or the first since the run failed.
    pub first: u32,
    /// Clients asked, among them every client in `updates`.
    pub cohort: Arc<BTreeSet<ClientId>>,
    /// When the first attempt opened.
    pub opened: Millis,
    /// When this attempt opened or was resumed: grace counts from here at the earliest.
    pub since: Millis,
    pub deadline: Millis,
    pub updates: ByClient<Accepted>,
    /// Excluded clients, each with its update if one was accepted.
    pub excluded: BTreeMap<ClientId, Option<Digest>>,
    /// For each client in `cohort`, the attempt since which it is asked without interruption: an update that was begun in
    /// another attempt is refused for good.
    pub asked_in: Arc<BTreeMap<ClientId, u32>>,
    /// Absent clients in `cohort` that have been replaced. Their updates still count.
    pub excused: Arc<BTreeSet<ClientId>>,
    /// Most bytes of an update, by client, in place of the plan's budget.
    pub budgets: Arc<BTreeMap<ClientId, u64>>,
    /// Rates of uploads in millionths of the median of the cohort, by client, as they were handed out.
    pub bandwidths: Arc<BTreeMap<ClientId, u32>>,
    /// How the uploads of `updates` went, where that was measured.
    pub transfers: ByClient<Transfer>,
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

    /// When the grace after the `target` updates ends, if the round has them.
    pub fn grace_ends(&self, cohort: &Cohort) -> Option<Millis> {
        self.reached(cohort.target).map(|at| cohort.grace_from(at))
    }

    /// When the round closes, or another attempt begins, if nobody answers until then.
    pub fn closes_at(&self, cohort: &Cohort) -> Millis {
        let ends = self.grace_ends(cohort);
        ends.map_or(self.deadline, |at| at.min(self.deadline))
    }

    pub fn missing(&self) -> impl Iterator<Item = &ClientId> {
        self.cohort.iter().filter(|client| !self.updates.contains(client))
    }

    /// Whether the update of a client is missing and nobody was asked in its place.
    pub(super) fn lacks(&self, client: &ClientId) -> bool {
        self.cohort.contains(client) && !self.updates.contains(client) && !self.excused.contains(client)
    }

    /// Whether a client can be asked that is not asked already.
    pub(super) fn can_ask(&self, client: &ClientId) -> bool {
        !self.cohort.contains(client) && !self.excluded.contains_key(client)
    }

    /// Digest of the client's accepted update. An acknowledgement is final: an excluded client gets the same answer, though its
    /// update does not count.
    pub(super) fn accepted(&self, client: &ClientId) -> Option<Digest> {
        let counted = self.updates.get(client).map(|update| update.digest);
        counted.or_else(|| self.excluded.get(client).copied().flatten())
    }

    /// Missing clients without a replacement that may stay away, each with the time at which the server stops waiting for it, if
    /// it does. Those that are connected and work cost nothing but a comparison.
    pub(super) fn losing<'a>(
        &'a self,
        presence: &'a Presence,
        absent: Millis,
    ) -> impl Iterator<Item = (&'a ClientId, Millis)> {
        let away = presence.away_or_idle(&self.cohort, self.number);
        let away = away.filter(|client| self.lacks(client));
        away.filter_map(move |client| Some((client, self.lost_at(client, presence, absent)?)))
    }

    /// Whether the round waits for a client at `now`: it lacks its update, and the client is not lost.
    pub fn waits_for(&self, client: &ClientId, presence: &Presence, absent: Millis, now: Millis) -> bool {
        self.lacks(client) && self.lost_at(client, presence, absent).is_none_or(|at| at > now)
    }

    /// As [`Presence::lost_at`], of a member of this round.
    pub(super) fn lost_at(&self, client: &ClientId, presence: &Presence, absent: Millis) -> Option<Millis> {
        if presence.is_sitting_out(client, self.number) {
            return Some(0);
        }
        presence.lost_at(client, self.since, absent)
    }

    /// Available clients that can be asked in place of members of this round.
    pub(super) fn substitutes<'a>(&'a self, presence: &'a Presence) -> impl Iterator<Item = &'a ClientId> {
        let available = presence.available().iter();
        available.filter(|client| self.can_ask(client) && !presence.is_sitting_out(client, self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_machine::State;
    use crate::storage::record::{Accepted, Record, samples};

    #[test]
    fn those_that_may_be_lost_are_found_among_those_away_and_idle() {
        let client = |name: &str| name.parse::<ClientId>().unwrap();
        let names = ["answered", "away", "back", "idle", "left", "new", "works"];
        let mut state = State::new();
        let update = Accepted::sample(Digest::of(b"x"));
        let answered = Record::UpdateAccepted {
            round: 1,
            client: client("answered"),
            update,
        };
        let records = [samples::started(), samples::opened(1, 1, &names, 0, 1_000), answered];
        records.iter().for_each(|record| state.apply(record).unwrap());
        let mut presence = Presence::default();
        names
            .iter()
            .filter(|name| **name != "new")
            .for_each(|name| presence.arrived(client(name)));
        ["answered", "away", "back"]
            .iter()
            .for_each(|name| presence.left(&client(name), 7));
        presence.arrived(client("back"));
        presence.left_for_good(client("left"), 8);
        presence.sits_out(client("idle"), 1);
        presence.sits_out(client("works"), 9);
        let round = state.round().unwrap();
        let mut found: Vec<_> = round.losing(&presence, 100).collect();
        found.sort_unstable();
        let named = found
            .iter()
            .map(|(client, at)| (client.as_str(), *at))
            .collect::<Vec<_>>();
        assert_eq!(named, [("away", 107), ("idle", 0), ("left", 0), ("new", 100)]);
        let each = round.missing().filter(|client| round.lacks(client));
        let each = each.filter_map(|client| Some((client, round.lost_at(client, &presence, 100)?)));
        assert!(each.eq(found));
    }
}
