//! The state of a run: the fold of its records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::clock::Millis;
use crate::config::plan::RunPlan;
use crate::state_machine::by_client::ByClient;
use crate::state_machine::closed::Closed;
use crate::state_machine::evaluated::{Evaluated, Summed};
use crate::state_machine::log::Log;
use crate::state_machine::pending_work::{Contribution, PendingWork};
use crate::state_machine::presence::Presence;
use crate::state_machine::round::Round;
use crate::state_machine::uplinks::Uplink;
use crate::storage::record::{Accepted, Limited, Record};

/// The phase of the run.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Phase {
    /// No round is open; the run waits for clients.
    #[default]
    Waiting,
    /// A round is open: its cohort trains and uploads.
    Training(Round),
    /// The server aggregates a round's updates.
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
    pub(super) model: Option<Digest>,
    /// Digest of the model of version 0.
    pub(super) initial: Option<Digest>,
    /// While waiting: since when the minimum of clients is connected.
    pub(super) gathered: Option<Millis>,
    /// While waiting: the failed round that is tried again.
    pub(super) held: Option<Round>,
    /// Clients that were connected when the last round opened.
    pub(super) present: usize,
    /// Whether the server restarted since then.
    pub(super) restarted: bool,
    /// Cohort of the last closed round.
    pub(super) last: Arc<BTreeSet<ClientId>>,
    pub(super) closed: Log<Closed>,
    /// Each client's last accepted update in a closed round, for clients that ask again.
    pub(super) settled: Arc<BTreeMap<ClientId, (u64, Digest)>>,
    /// What is known of each client's uploads in closed rounds.
    pub(super) uplinks: Arc<BTreeMap<ClientId, Uplink>>,
    /// By client, of the newest version and the one before: a client that reported is not asked again.
    pub(super) evaluations: BTreeMap<u64, ByClient<Evaluated>>,
    /// Sums of all older versions, from 0.
    pub(super) evaluated: Log<Option<Summed>>,
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

    /// Whether `Started` was applied.
    pub fn is_started(&self) -> bool {
        self.plan.is_some()
    }

    /// Whether the run is done or failed.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Failed { .. })
    }

    /// Digest of the plan that the run began with.
    pub fn plan(&self) -> Option<Digest> {
        self.plan
    }

    /// The newest model version: the number of rounds closed and of rollbacks.
    pub fn version(&self) -> u64 {
        self.closed.len() as u64
    }

    /// Rounds behind the newest model, without those that were rolled back: what the plan's `rounds` counts.
    pub fn depth(&self) -> u64 {
        self.depth_of(self.version())
    }

    pub(super) fn depth_of(&self, version: u64) -> u64 {
        self.made(version).map_or(0, |made| made.depth)
    }

    /// The number of the run's last round if no further rollback happens.
    pub fn last_round(&self, plan: &RunPlan) -> u64 {
        plan.rounds + (self.version() - self.depth())
    }

    /// The newest version that a round made, not a rollback. 0 if there is none.
    pub fn last_closed(&self) -> u64 {
        let mut version = self.version();
        while self.made(version).is_some_and(|made| made.base.is_some()) {
            version -= 1;
        }
        version
    }

    /// How a version after 0 was made.
    fn made(&self, version: u64) -> Option<&Closed> {
        let at = usize::try_from(version.checked_sub(1)?).ok()?;
        self.closed.get(at)
    }

    /// The newest rollback: its version, and the version whose model it is.
    pub fn rolled_back(&self) -> Option<(u64, u64)> {
        let rollbacks = self
            .closed
            .iter()
            .filter_map(|made| made.base.map(|to| (made.round, to)));
        rollbacks.last()
    }

    /// Digest of the model of a version.
    pub fn model_of(&self, version: u64) -> Option<Digest> {
        match version {
            0 => self.initial,
            version => self.made(version).map(|made| made.model),
        }
    }

    /// Frames of the model updates whose sum with version 0 is this version; `None` if there is no such version.
    pub fn steps_of(&self, version: u64) -> Option<Vec<Digest>> {
        let (mut at, mut steps) = (version, Vec::new());
        while at > 0 {
            let made = self.made(at)?;
            at = match made.base {
                Some(to) => to,
                None => {
                    steps.push(made.frame);
                    at - 1
                }
            };
        }
        steps.reverse();
        Some(steps)
    }

    /// The record that takes the model back to version `to`.
    ///
    /// # Errors
    /// If the run has not begun, or has no such version before the newest.
    pub fn roll_back(&self, to: u64, now: Millis) -> Result<Record, String> {
        let newest = self.version();
        let model = self.model_of(to).filter(|_| to < newest);
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
                let (round, before) = (open.number, open.number - 1);
                return Err(format!(
                    "round {round} is being averaged already; when it is closed, undo it with \
                     `fl-server rollback --to {before}`"
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
        let open = self.round().or(self.held.as_ref());
        open.map_or(closed, |open| closed.after(open, client))
    }

    /// Digest of the newest model; that of no bytes before `Started`.
    pub fn model(&self) -> Digest {
        self.model.unwrap_or_else(|| Digest::of(&[]))
    }

    /// The versions made so far, by a round or a rollback: the one at index `i` is version `i + 1`.
    pub fn rounds(&self) -> &Log<Closed> {
        &self.closed
    }

    /// The round and the digest of this client's last accepted update.
    pub(super) fn accepted(&self, client: &ClientId) -> Option<(u64, Digest)> {
        let open = self.round().or(self.held.as_ref());
        let open = open.and_then(|open| {
            let counted = open.updates.get(client).map(|update| update.digest);
            // An acknowledgement is final: an excluded client gets the same answer, though its update does not count.
            let digest = counted.or_else(|| open.excluded.get(client).copied().flatten())?;
            Some((open.number, digest))
        });
        open.or_else(|| self.settled.get(client).copied())
    }

    /// The work of the current phase outside the state machine.
    pub fn pending_work(&self) -> Option<PendingWork> {
        let Phase::Closing(round) = &self.phase else {
            return None;
        };
        let part = |(client, update): (&ClientId, &Accepted)| Contribution {
            client: client.clone(),
            examples: update.examples,
            frame: update.digest,
        };
        Some(PendingWork {
            round: round.number,
            updates: round.updates.iter().map(part).collect(),
        })
    }

    /// The next moment after `now` at which a [`Input::Tick`](super::Input::Tick) does something, if nothing else
    /// happens before.
    pub fn wake(&self, plan: &RunPlan, now: Millis, presence: &Presence) -> Option<Millis> {
        let (cohort, absent) = (&plan.cohort, plan.cohort.absent);
        match &self.phase {
            Phase::Waiting => {
                let grace = cohort.grace_from(self.gathered?);
                presence.returning(now, absent).chain([grace]).min()
            }
            Phase::Training(round) => {
                let lost = round.losing(presence, absent).map(|(_, at)| at);
                lost.filter(|at| *at > now).chain([round.closes_at(cohort)]).min()
            }
            Phase::Evaluating { version, asked, until } => {
                let owing = asked.iter().filter(|client| !self.reported(client, *version));
                let start = until.saturating_sub(cohort.deadline);
                let lost = owing.filter_map(|client| presence.owes_nothing_at(client, *version, start, absent));
                lost.filter(|at| *at > now).chain([*until]).min()
            }
            Phase::Closing(_) | Phase::Done | Phase::Failed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::record::samples;

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
                Record::EvaluationAccepted {
                    version: round - 1,
                    client: client.clone(),
                    examples: 1,
                    loss: 0.0,
                    correct: Some(0.0),
                    language: false,
                    metrics: Arc::default(),
                    at: 0,
                },
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
