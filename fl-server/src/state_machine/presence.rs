//! The clients that are connected, that left, and that do not answer in a round: an argument of every decision.

use std::collections::{BTreeMap, BTreeSet};

use fl_proto::ClientId;

use crate::clock::Millis;

/// What the server has seen of its clients since its start. A client that it has not seen is absent since then.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Presence {
    connected: BTreeSet<ClientId>,
    /// Clients that take part in no round for now.
    paused: BTreeSet<ClientId>,
    /// Connected clients that are not paused.
    available: BTreeSet<ClientId>,
    /// Connected clients that evaluate and are never asked for an update.
    evaluators: BTreeSet<ClientId>,
    gone: BTreeMap<ClientId, Absence>,
    /// Clients that announced that they do not answer in this round.
    sitting_out: BTreeMap<ClientId, u64>,
    /// Clients that announced that they do not evaluate this model version.
    not_evaluating: BTreeMap<ClientId, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Absence {
    since: Millis,
    for_good: bool,
    paused: bool,
}

impl Presence {
    pub fn arrived(&mut self, client: ClientId) {
        self.gone.remove(&client);
        if !self.paused.contains(&client) && !self.evaluators.contains(&client) {
            self.available.insert(client.clone());
        }
        self.connected.insert(client);
    }

    /// The client, which is connected or about to be, only evaluates while it is connected.
    pub fn only_evaluates(&mut self, client: ClientId) {
        self.available.remove(&client);
        self.evaluators.insert(client);
    }

    pub fn is_evaluator(&self, client: &ClientId) -> bool {
        self.evaluators.contains(client)
    }

    pub fn left(&mut self, client: &ClientId, now: Millis) {
        self.evaluators.remove(client);
        let paused = self.paused.remove(client);
        if self.connected.remove(client) {
            self.available.remove(client);
            let absence = Absence {
                since: now,
                for_good: false,
                paused,
            };
            self.gone.insert(client.clone(), absence);
        }
    }

    pub fn left_for_good(&mut self, client: ClientId, now: Millis) {
        self.connected.remove(&client);
        self.available.remove(&client);
        self.evaluators.remove(&client);
        let absence = Absence {
            since: now,
            for_good: true,
            paused: self.paused.remove(&client),
        };
        self.gone.insert(client, absence);
    }

    /// The client takes part in no round until it [resumes](Self::resumes), or until its last connection has ended. A member of
    /// the open round keeps its place.
    pub fn pauses(&mut self, client: ClientId) {
        self.available.remove(&client);
        self.paused.insert(client);
    }

    pub fn resumes(&mut self, client: &ClientId) {
        if self.paused.remove(client) && self.connected.contains(client) && !self.evaluators.contains(client) {
            self.available.insert(client.clone());
        }
    }

    /// The client announces that it stays connected and does not answer in this round.
    pub fn sits_out(&mut self, client: ClientId, round: u64) {
        self.sitting_out.insert(client, round);
    }

    /// The client announces that it sends no evaluation of this model version.
    pub fn will_not_evaluate(&mut self, client: ClientId, version: u64) {
        self.not_evaluating.insert(client, version);
    }

    pub fn connected(&self) -> &BTreeSet<ClientId> {
        &self.connected
    }

    /// Connected clients that can be asked for an update.
    pub fn available(&self) -> &BTreeSet<ClientId> {
        &self.available
    }

    /// The clients of `cohort` that are not connected, and those that announced that they do not answer in `round`.
    pub(super) fn away_or_idle<'a>(
        &'a self,
        cohort: &'a BTreeSet<ClientId>,
        round: u64,
    ) -> impl Iterator<Item = &'a ClientId> {
        let idle = self.sitting_out.iter().filter(move |(_, of)| **of == round);
        let idle = idle.map(|(client, _)| client);
        let idle = idle.filter(|client| self.connected.contains(*client) && cohort.contains(*client));
        cohort.difference(&self.connected).chain(idle)
    }

    pub fn has_left(&self, client: &ClientId) -> bool {
        self.gone.contains_key(client)
    }

    /// Since when a client is absent; `None` if it is connected. `start`: the begin of the round or evaluation, from which
    /// absence counts for a client that the server has not seen.
    pub fn absent_since(&self, client: &ClientId, start: Millis) -> Option<Millis> {
        let absent = !self.connected.contains(client);
        absent.then(|| self.gone.get(client).map_or(start, |gone| gone.since))
    }

    /// When the server stops waiting for `client` if it stays away: `absent` after it left, or at once if it left for good.
    /// `None` while it is connected.
    pub(super) fn lost_at(&self, client: &ClientId, start: Millis, absent: Millis) -> Option<Millis> {
        match self.gone.get(client) {
            Some(gone) if gone.for_good => Some(0),
            _ => Some(self.absent_since(client, start)?.saturating_add(absent)),
        }
    }

    /// Whether the client announced that it does not answer in `round`.
    pub(crate) fn is_sitting_out(&self, client: &ClientId, round: u64) -> bool {
        self.sitting_out.get(client) == Some(&round)
    }

    /// When the server stops waiting for the evaluation of `version` by `client`: at once if it announced that there is none,
    /// otherwise as [`Presence::lost_at`].
    pub(super) fn owes_nothing_at(
        &self,
        client: &ClientId,
        version: u64,
        start: Millis,
        absent: Millis,
    ) -> Option<Millis> {
        if self.not_evaluating.get(client) == Some(&version) {
            return Some(0);
        }
        self.lost_at(client, start, absent)
    }

    /// For each client that left within the last `absent`, was not paused and may come back: when the server stops waiting for it.
    pub(super) fn returning(&self, now: Millis, absent: Millis) -> impl Iterator<Item = Millis> {
        let returning = self.gone.values().filter(|gone| !gone.for_good && !gone.paused);
        let until = returning.map(move |gone| gone.since.saturating_add(absent));
        until.filter(move |until| *until > now)
    }
}
