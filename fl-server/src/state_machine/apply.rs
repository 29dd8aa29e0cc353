//! The only way to change a [`State`]: a record.

use std::collections::BTreeMap;
use std::sync::Arc;

use fl_compress::Digest;
use fl_proto::ClientId;

use crate::state_machine::by_client::ByClient;
use crate::state_machine::round::Round;
use crate::state_machine::state::{Phase, State};
use crate::state_machine::uplinks::Uplink;
use crate::storage::record::Record;

/// A record that cannot follow what came before it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("impossible record: {why}: {record:?}")]
pub struct ImpossibleRecord {
    pub why: &'static str,
    pub record: Box<Record>,
}

impl State {
    /// Applies one record.
    ///
    /// # Errors
    /// If the record cannot follow the records before it; the state is then unchanged.
    pub fn apply(&mut self, record: &Record) -> Result<(), ImpossibleRecord> {
        self.change(record).map_err(|why| ImpossibleRecord {
            why,
            record: Box::new(record.clone()),
        })
    }

    fn change(&mut self, record: &Record) -> Result<(), &'static str> {
        ensure(
            self.is_started() != matches!(record, Record::Started { .. }),
            "a run is started once, and first",
        )?;
        match record {
            Record::Started { plan, .. } => {
                self.plan = Some(*plan);
                self.versions.add(record);
            }
            Record::Gathered { since } => {
                ensure(self.phase == Phase::Waiting, "the run is not waiting for clients")?;
                self.gathered = *since;
            }
            Record::RoundOpened { .. } => self.open(record)?,
            Record::UpdateAccepted { round, client, update } => {
                let open = self.training(*round)?;
                ensure(open.cohort.contains(client), "the client is not in the cohort")?;
                ensure(!open.updates.contains(client), "the client has answered already")?;
                open.updates.insert(client.clone(), update.clone());
            }
            Record::MembersReplaced { round, absent, by, .. } => {
                let open = self.training(*round)?;
                ensure(
                    !by.is_empty() && by.len() == absent.len(),
                    "as many are asked as are absent",
                )?;
                ensure(by.is_disjoint(&open.cohort), "the client is in the cohort already")?;
                ensure(
                    !by.iter().any(|client| open.excluded.contains_key(client)),
                    "an excluded client is asked",
                )?;
                ensure(
                    absent.iter().all(|client| open.lacks(client)),
                    "the client is not waited for",
                )?;
                let attempt = open.attempt;
                Arc::make_mut(&mut open.excused).extend(absent.iter().cloned());
                Arc::make_mut(&mut open.cohort).extend(by.iter().cloned());
                Arc::make_mut(&mut open.asked_in).extend(by.iter().map(|client| (client.clone(), attempt)));
            }
            Record::BudgetsSet { round, budgets, .. } => {
                let open = self.training(*round)?;
                ensure(
                    budgets.keys().all(|client| open.cohort.contains(client)),
                    "the client is not in the cohort",
                )?;
                let set = budgets.iter().map(|(client, bytes)| (client.clone(), *bytes));
                Arc::make_mut(&mut open.budgets).extend(set);
            }
            Record::BandwidthsSet { round, bandwidths, .. } => {
                let open = self.training(*round)?;
                ensure(
                    bandwidths.keys().all(|client| open.cohort.contains(client)),
                    "the client is not in the cohort",
                )?;
                let set = bandwidths.iter().map(|(client, ratio)| (client.clone(), *ratio));
                Arc::make_mut(&mut open.bandwidths).extend(set);
            }
            Record::UploadMeasured {
                round,
                client,
                transfer,
                ..
            } => {
                let open = self.training(*round)?;
                ensure(open.updates.contains(client), "the client has not answered")?;
                open.transfers.insert(client.clone(), *transfer);
            }
            Record::RoundClosing { round, .. } => {
                let open = self.training(*round)?.clone();
                ensure(!open.updates.is_empty(), "the round has no updates")?;
                self.phase = Phase::Closing(open);
            }
            Record::RoundClosed { round, limited, .. } => {
                let Phase::Closing(open) = &self.phase else {
                    return Err("no round is closing");
                };
                ensure(open.number == *round, "it is not this round")?;
                let bytes = open
                    .updates
                    .values()
                    .fold(0u64, |sum, update| sum.saturating_add(update.len));
                self.update_bytes = bytes.checked_div(open.updates.len() as u64);
                note_uploads(Arc::make_mut(&mut self.uplinks), open);
                Arc::make_mut(&mut self.settled).extend(answered(open));
                self.limited = Arc::new(limited.clone());
                self.phase = Phase::Waiting;
                self.gathered = None;
                self.versions.add(record);
                self.sum_up_evaluations();
            }
            Record::EvaluationAccepted {
                version,
                client,
                evaluation,
            } => {
                ensure(*version <= self.version(), "there is no such version")?;
                ensure(
                    *version >= self.evaluated.len() as u64,
                    "its evaluations are summed up already",
                )?;
                let reports = self.evaluations.entry(*version).or_default();
                ensure(!reports.contains(client), "the client has reported already")?;
                reports.insert(client.clone(), evaluation.clone());
            }
            Record::EvaluationOpened { version, asked, until } => {
                ensure(self.phase == Phase::Waiting, "a round is open")?;
                ensure(*version == self.version(), "it is not the newest version")?;
                self.phase = Phase::Evaluating {
                    version: *version,
                    asked: Arc::new(asked.clone()),
                    until: *until,
                };
                self.gathered = None;
            }
            Record::RunDone { .. } => {
                ensure(
                    matches!(self.phase, Phase::Waiting | Phase::Evaluating { .. }),
                    "a round is open",
                )?;
                ensure(self.held.is_none(), "a round is to be tried again")?;
                self.phase = Phase::Done;
                self.gathered = None;
            }
            Record::RunFailed { round, why, .. } => {
                let open = self.training(*round)?.clone();
                self.held = Some(open);
                self.phase = Phase::Failed {
                    round: *round,
                    why: why.clone(),
                };
            }
            Record::RolledBack { version, to, model, .. } => {
                ensure(*version == self.version() + 1, "it is not the next version")?;
                ensure(*to < self.version(), "there is no such version to go back to")?;
                ensure(self.versions.model(*to) == Some(*model), "its model is another")?;
                let open = match std::mem::take(&mut self.phase) {
                    Phase::Training(open) | Phase::Closing(open) => Some(open),
                    _ => self.held.take(),
                };
                self.held = None;
                self.gathered = None;
                if let Some(open) = &open {
                    note_uploads(Arc::make_mut(&mut self.uplinks), open);
                    Arc::make_mut(&mut self.settled).extend(answered(open));
                }
                self.update_bytes = None;
                self.versions.add(record);
                self.sum_up_evaluations();
            }
            Record::Excluded { round, client, .. } => {
                let open = match &mut self.phase {
                    Phase::Training(open) => open,
                    Phase::Waiting | Phase::Failed { .. } => self.held.as_mut().ok_or("no round is open")?,
                    _ => return Err("no round is open"),
                };
                ensure(open.number == *round, "it is not this round")?;
                ensure(!open.excluded.contains_key(client), "the client is excluded already")?;
                let update = open.updates.remove(client);
                Arc::make_mut(&mut open.cohort).remove(client);
                Arc::make_mut(&mut open.asked_in).remove(client);
                Arc::make_mut(&mut open.excused).remove(client);
                let digest = update.as_ref().map(|update| update.digest);
                open.excluded.insert(client.clone(), digest);
                if let Some(update) = update {
                    let known = Arc::make_mut(&mut self.uplinks).entry(client.clone()).or_default();
                    known.sent = known.sent.saturating_add(update.len);
                }
            }
            Record::Resumed { at, until } => {
                self.restarted = true;
                self.gathered = None;
                match &mut self.phase {
                    Phase::Training(open) => (open.since, open.deadline) = (*at, *until),
                    Phase::Evaluating { until: end, .. } => *end = *until,
                    Phase::Failed { .. } => self.phase = Phase::Waiting,
                    Phase::Waiting | Phase::Closing(_) | Phase::Done => {}
                }
            }
        }
        Ok(())
    }

    fn training(&mut self, round: u64) -> Result<&mut Round, &'static str> {
        match &mut self.phase {
            Phase::Training(open) if open.number == round => Ok(open),
            Phase::Training(_) => Err("it is not this round"),
            _ => Err("no round is open"),
        }
    }

    fn open(&mut self, record: &Record) -> Result<(), &'static str> {
        let Record::RoundOpened {
            round,
            attempt,
            cohort,
            present,
            at,
            deadline,
        } = record
        else {
            return Err("it opens no round");
        };
        let before = match &self.phase {
            Phase::Waiting => self.held.as_ref(),
            Phase::Training(open) => Some(open),
            _ => return Err("a round cannot open now"),
        };
        let number = before.map_or(self.version() + 1, |open| open.number);
        ensure(*round == number, "it is not the next round")?;
        ensure(
            *attempt == before.map_or(1, |open| open.attempt.saturating_add(1)),
            "it is not the next attempt",
        )?;
        ensure(!cohort.is_empty(), "the cohort is empty")?;
        let kept = before.map_or_else(ByClient::default, |open| open.updates.clone());
        ensure(
            kept.clients().all(|client| cohort.contains(client)),
            "an accepted update is left out",
        )?;
        let excluded = before.map_or_else(BTreeMap::new, |open| open.excluded.clone());
        ensure(
            !cohort.iter().any(|client| excluded.contains_key(client)),
            "an excluded client is asked",
        )?;
        let asked_in = cohort.iter().map(|client| {
            let since = before.and_then(|open| open.asked_in.get(client));
            (client.clone(), since.copied().unwrap_or(*attempt))
        });
        let asked_in = Arc::new(asked_in.collect());
        let mut budgets = before.map_or_else(Arc::default, |open| open.budgets.clone());
        Arc::make_mut(&mut budgets).retain(|client, _| cohort.contains(client));
        let mut bandwidths = before.map_or_else(Arc::default, |open| open.bandwidths.clone());
        Arc::make_mut(&mut bandwidths).retain(|client, _| cohort.contains(client));
        let transfers = before.map_or_else(ByClient::default, |open| open.transfers.clone());
        self.phase = Phase::Training(Round {
            number,
            attempt: *attempt,
            first: match &self.phase {
                Phase::Training(open) => open.first,
                _ => *attempt,
            },
            cohort: Arc::new(cohort.clone()),
            opened: before.map_or(*at, |open| open.opened),
            since: *at,
            deadline: *deadline,
            updates: kept,
            excluded,
            asked_in,
            excused: Arc::default(),
            budgets,
            bandwidths,
            transfers,
        });
        self.held = None;
        self.gathered = None;
        self.present = *present as usize;
        self.restarted = false;
        Ok(())
    }
}

/// The clients whose updates were accepted in the round, excluded ones too.
fn answered(open: &Round) -> impl Iterator<Item = (ClientId, (u64, Digest))> {
    let counted = open.updates.iter().map(|(client, update)| (client, update.digest));
    let excluded = open
        .excluded
        .iter()
        .filter_map(|(client, digest)| Some((client, (*digest)?)));
    let number = open.number;
    counted
        .chain(excluded)
        .map(move |(client, digest)| (client.clone(), (number, digest)))
}

/// Adds the round's uploads to what is known of its clients.
fn note_uploads(uplinks: &mut BTreeMap<ClientId, Uplink>, open: &Round) {
    for client in open.updates.clients() {
        let known = uplinks.entry(client.clone()).or_default();
        *known = known.after(open, client);
    }
}

fn ensure(holds: bool, why: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(why) }
}
