//! The state of a run: the fold of its records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::clock::Millis;
use crate::config::plan::{Cohort, RunPlan};
use crate::state_machine::by_client::ByClient;
use crate::state_machine::evaluated::EvaluationSum;
use crate::state_machine::log::Log;
use crate::state_machine::pending_work::PendingWork;
use crate::state_machine::presence::Presence;
use crate::state_machine::round::Round;
use crate::state_machine::uplinks::Uplink;
use crate::state_machine::versions::Versions;
use crate::storage::record::{ClientEvaluation, Limited, Record};

#[derive(Debug, Clone, PartialEq, Default)]
pub enum Phase {
    /// No round is open; the run waits for clients.
    #[default]
    Waiting,
    /// A round is open: its cohort trains and uploads.
    Training(Round),
    Closing(Round),
    /// Clients evaluate the last model.
    Evaluating {
        version: u64,
        asked: Arc<BTreeSet<ClientId>>,
        /// When the server stops waiting for them.
        until: Millis,
    },
    Done,
    Failed {
        /// The round that could not be closed.
        round: u64,
        /// Names the clients that were missing.
        why: String,
    },
}

/// The state of a run. Only [`State::apply`] changes it.
///
/// Every change copies the state if a reader still holds it, so what grows with the rounds or with the clients is shared between
/// copies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    pub(super) plan: Option<Digest>,
    pub(super) phase: Phase,
    /// While waiting: since when the minimum of clients is connected.
    pub(super) gathered: Option<Millis>,
    /// While waiting: the failed round that is tried again.
    pub(super) held: Option<Round>,
    /// Clients that were connected when the last round opened.
    pub(super) present: usize,
    /// Whether the server restarted since then.
    pub(super) restarted: bool,
    pub(super) versions: Versions,
    /// Mean bytes of the updates of the round that made the newest version; `None` for version 0 and a rollback.
    pub(super) update_bytes: Option<u64>,
    /// Each client's last accepted update in a closed round, for clients that ask again.
    pub(super) settled: Arc<BTreeMap<ClientId, (u64, Digest)>>,
    /// What is known of each client's uploads in closed rounds.
    pub(super) uplinks: Arc<BTreeMap<ClientId, Uplink>>,
    /// By client, of the newest version and the one before: a client that reported is not asked again.
    pub(super) evaluations: BTreeMap<u64, ByClient<ClientEvaluation>>,
    /// Sums of all older versions, from 0.
    pub(super) evaluated: Log<Option<EvaluationSum>>,
    /// Claims of the last closed round that count for less: their clients are told.
    pub(super) limited: Arc<Vec<Limited>>,
}

impl State {
    /// A run before its first record.
    pub fn new() -> Self {
        Self::default()
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The open round, while training or closing.
    pub fn round(&self) -> Option<&Round> {
        match &self.phase {
            Phase::Training(round) | Phase::Closing(round) => Some(round),
            _ => None,
        }
    }

    /// The open round, or the failed one that is tried again.
    pub(super) fn unclosed(&self) -> Option<&Round> {
        self.round().or(self.held.as_ref())
    }

    pub fn is_started(&self) -> bool {
        self.plan.is_some()
    }

    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Failed { .. })
    }

    pub fn plan(&self) -> Option<Digest> {
        self.plan
    }

    /// The newest model version: the number of rounds closed and of rollbacks.
    pub fn version(&self) -> u64 {
        self.versions.newest()
    }

    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Rounds behind the newest model, without those that were rolled back: what the plan's `rounds` counts.
    pub fn depth(&self) -> u64 {
        self.versions.depth(self.version())
    }

    /// The number of the run's last round if no further rollback happens.
    pub fn last_round(&self, plan: &RunPlan) -> u64 {
        plan.rounds + (self.version() - self.depth())
    }

    /// The record that takes the model back to version `to`.
    ///
    /// # Errors
    /// If the run has not begun, or has no such version before the newest.
    pub fn roll_back(&self, to: u64, now: Millis) -> Result<Record, String> {
        let newest = self.version();
        let model = self.versions.model(to).filter(|_| to < newest);
        let model = model.ok_or_else(|| match newest {
            0 => "no round is closed yet: there is nothing to roll back".to_owned(),
            newest => format!(
                "cannot roll back to version {to}: give a version from 0 to {}",
                newest - 1
            ),
        })?;
        Ok(Record::RolledBack {
            version: newest + 1,
            to,
            model,
            at: now,
        })
    }

    /// The record that excludes a client from the open round, or from a failed round that is tried again.
    ///
    /// # Errors
    /// If no round accepts updates, or the client is excluded already.
    pub fn exclude(&self, client: &ClientId, now: Millis) -> Result<Record, String> {
        let open = match (&self.phase, &self.held) {
            (Phase::Training(open), _) | (Phase::Waiting | Phase::Failed { .. }, Some(open)) => open,
            (Phase::Closing(open), _) => {
                return Err(format!(
                    "round {} is being averaged already; when it is closed, undo it with \
                     `fl-server rollback --to {}`",
                    open.number,
                    open.number - 1
                ));
            }
            _ => return Err("no round is open".to_owned()),
        };
        if open.excluded.contains_key(client) {
            return Err(format!("{client} is excluded from round {} already", open.number));
        }
        if !open.cohort.contains(client) {
            let asked: Vec<&str> = open.cohort.iter().map(ClientId::as_str).collect();
            return Err(format!(
                "{client} is not asked in round {}; these are: {}",
                open.number,
                asked.join(", ")
            ));
        }
        Ok(Record::Excluded {
            round: open.number,
            client: client.clone(),
            at: now,
        })
    }

    /// What is known of a client's uploads, those of an open round included.
    pub(super) fn uplink(&self, client: &ClientId) -> Uplink {
        let closed = self.uplinks.get(client).copied().unwrap_or_default();
        self.unclosed().map_or(closed, |open| closed.after(open, client))
    }

    /// Digest of the newest model; that of no bytes before `Started`.
    pub fn model(&self) -> Digest {
        let newest = self.versions.model(self.version());
        newest.unwrap_or_else(|| Digest::of(&[]))
    }

    /// Mean bytes of an update in the round that made the newest version, if a round did.
    pub fn update_bytes(&self) -> Option<u64> {
        self.update_bytes
    }

    /// The round and the digest of this client's last accepted update.
    pub(super) fn accepted(&self, client: &ClientId) -> Option<(u64, Digest)> {
        let open = self
            .unclosed()
            .and_then(|open| Some((open.number, open.accepted(client)?)));
        open.or_else(|| self.settled.get(client).copied())
    }

    /// The work of the current phase outside the state machine.
    pub fn pending_work(&self) -> Option<PendingWork> {
        let Phase::Closing(round) = &self.phase else {
            return None;
        };
        Some(PendingWork::of(round.number, round.updates.iter()))
    }

    /// The next moment after `now` at which a [`Input::Tick`](super::Input::Tick) does something, if nothing else
    /// happens before.
    pub fn wake(&self, plan: &RunPlan, now: Millis, presence: &Presence) -> Option<Millis> {
        let cohort = &plan.cohort;
        match &self.phase {
            Phase::Waiting => {
                let grace = cohort.grace_from(self.gathered?);
                presence.returning(now, cohort.absent).chain([grace]).min()
            }
            Phase::Training(round) => {
                let lost = round.losing(presence, cohort.absent).map(|(_, at)| at);
                lost.filter(|at| *at > now).chain([round.closes_at(cohort)]).min()
            }
            Phase::Evaluating { version, asked, until } => {
                let lost = self.owing(asked, *version, *until, cohort, presence).flatten();
                lost.filter(|at| *at > now).chain([*until]).min()
            }
            Phase::Closing(_) | Phase::Done | Phase::Failed { .. } => None,
        }
    }

    /// For each client of `asked` that has not reported its evaluation of `version`: when the server stops waiting for it, if
    /// it does. `until`: when the server stops waiting for all.
    pub(super) fn owing(
        &self,
        asked: &BTreeSet<ClientId>,
        version: u64,
        until: Millis,
        cohort: &Cohort,
        presence: &Presence,
    ) -> impl Iterator<Item = Option<Millis>> {
        let start = until.saturating_sub(cohort.deadline);
        let owing = asked.iter().filter(move |client| !self.reported(client, version));
        owing.map(move |client| presence.owes_nothing_at(client, version, start, cohort.absent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::record::{Accepted, samples};

    fn client(i: u64) -> ClientId {
        format!("client-{i}").parse().unwrap()
    }

    /// Rounds of one client each, and never the same.
    fn records(rounds: u64) -> Vec<Record> {
        let mut records = vec![samples::started()];
        for round in 1..=rounds {
            let client = client(round);
            let update = Accepted::sample(Digest::of(b"x"));
            records.extend([
                samples::opened(round, 1, &[client.as_str()], 0, 0),
                samples::evaluated(round - 1, &client),
                Record::UpdateAccepted { round, client, update },
                samples::closing(round, 0),
                samples::closed(round, 0),
            ]);
        }
        records
    }

    #[test]
    fn a_change_of_a_copy_touches_only_what_the_cohort_makes() {
        let records = records(201);
        let (before, [update, closing, closed]) = records.split_last_chunk().unwrap();
        let mut old = State::new();
        before.iter().for_each(|record| old.apply(record).unwrap());
        assert_eq!((old.version(), old.settled.len()), (200, 200));
        assert!(old.evaluations.len() <= 2, "evaluations by client are of two versions");
        let mut new = old.clone();
        new.apply(update).unwrap();
        assert!(
            Arc::ptr_eq(&old.round().unwrap().cohort, &new.round().unwrap().cohort),
            "nor an update the cohort"
        );
        new.apply(closing).unwrap();
        assert!(
            Arc::ptr_eq(&old.settled, &new.settled),
            "an update copies nothing of the clients of other rounds"
        );
        let found = Some((201, Digest::of(b"x")));
        assert_eq!(new.accepted(&client(201)), found);
        new.apply(closed).unwrap();
        assert_eq!(new.accepted(&client(201)), found, "also when closed");
        assert_eq!((old.settled.len(), new.settled.len()), (200, 201));
    }
}
