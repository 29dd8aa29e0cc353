//! Audits a run in its store: makes every link, model and step again, and says which of them is another.
//!
//! It changes nothing of the run, and trusts only the first weights: all else must follow from them and the updates.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fl_compress::{Digest, Frame, Layout};

use crate::blobs::{BlobError, Blobs};
use crate::chain::links;
use crate::disk::Disk;
use crate::global::{Global, Replayed, replayed};
use crate::inspect::{InspectError, begun_run, rows};
use crate::ledger::Row;
use crate::plan::RunPlan;
use crate::record::Record;
use crate::store::{RunStore, Store};

/// What was found of a run.
#[derive(Debug)]
pub(crate) struct Audit {
    /// The run.
    pub(crate) run: String,
    /// What is wrong with version 0, if anything.
    pub(crate) initial: Found,
    /// Its closed rounds, in order.
    pub(crate) rounds: Vec<Round>,
}

/// What was found of a closed round.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) round: u64,
    /// Whether its records and ledger rows are those of its link.
    pub(crate) link: Found,
    /// Whether its step makes the model that was recorded.
    pub(crate) model: Found,
    /// Whether its updates make that step.
    pub(crate) aggregation: Found,
}

/// What one check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is as recorded.
    Good,
    /// It is not; why.
    Bad(String),
    /// It cannot be told; why.
    Unknown(String),
}

impl Found {
    fn of<T>(result: Result<T, String>) -> Self {
        result.map_or_else(Self::Bad, |_| Self::Good)
    }
}

impl Audit {
    /// Whether nothing was found wrong.
    pub(crate) fn is_good(&self) -> bool {
        let rounds = self.rounds.iter().flat_map(|r| [&r.link, &r.model, &r.aggregation]);
        rounds
            .chain([&self.initial])
            .all(|found| !matches!(found, Found::Bad(_)))
    }
}

/// Audits a run of the store below `data`, which no server may hold; without a name, the only one. Aggregation is done
/// again only with the run's plan. Blocks for as long as the run's rounds took to close.
///
/// # Errors
/// `NotThere` if there is no such run, or it was begun with another plan; those of the store, also for a record or row
/// that cannot be read.
pub(crate) fn audit(data: &Path, run: Option<&str>, plan: Option<&RunPlan>) -> Result<Audit, InspectError> {
    let store = Store::open(data, Disk::default())?;
    let (run, facts) = begun_run(&store, run)?;
    let corrupt = |text: String| InspectError::Corrupt(text);
    let blobs = Blobs::open(data, Disk::default()).map_err(|e| corrupt(e.to_string()))?;
    let (begun, model) = started(&run)?;
    if plan.is_some_and(|plan| plan.digest() != begun) {
        let text = format!("run {} was begun with another plan than the one given", run.name());
        return Err(InspectError::NotThere(text));
    }
    let mut links = checked_links(&run)?;
    let closed = replayed(run.records(), 0)?;
    let layout = Arc::new(facts.layout()?);
    let mut again = Again::new(blobs, layout, &facts.initial, plan);
    let initial = Found::of(again.is_model(&model));
    let round = |replayed: &Replayed| Round {
        round: replayed.round,
        link: links
            .remove(&replayed.round)
            .unwrap_or_else(|| Found::Unknown("an older program closed it without one".to_owned())),
        aggregation: again.aggregation(replayed),
        model: Found::of(again.step(replayed)),
    };
    Ok(Audit {
        run: run.name().to_string(),
        initial,
        rounds: closed.iter().map(round).collect(),
    })
}

/// Digests of the plan and the first weights, as recorded.
fn started(run: &RunStore) -> Result<(Digest, Digest), InspectError> {
    for record in run.records() {
        if let Record::Started { plan, model, .. } = record? {
            return Ok((plan, model));
        }
    }
    Err(InspectError::NotThere(format!("run {} has not begun yet", run.name())))
}

/// The stored links beside those that records and rows come to.
fn checked_links(run: &RunStore) -> Result<BTreeMap<u64, Found>, InspectError> {
    let (made, _) = links(run.records(), rows(run))?;
    let mut stored = Vec::new();
    for row in rows(run) {
        if let Row::Link { round, link } = row? {
            stored.push((round, link));
        }
    }
    let mut broken = None;
    let found = made.into_iter().zip(stored).map(|((round, made), (_, stored))| {
        let found = match broken {
            Some(before) => Found::Unknown(format!("it follows from that of round {before}")),
            None if made == stored => Found::Good,
            None => {
                broken = Some(round);
                Found::Bad("records or ledger rows since the link before are not those of the link".to_owned())
            }
        };
        (round, found)
    });
    Ok(found.collect())
}

/// What is made again.
struct Again {
    blobs: Blobs,
    layout: Arc<Layout>,
    /// The sum of the frames so far, or why there is none.
    model: Result<Vec<f32>, String>,
    /// The server's side, or why aggregation cannot go on.
    global: Result<Global, String>,
}

impl Again {
    fn new(blobs: Blobs, layout: Arc<Layout>, initial: &str, plan: Option<&RunPlan>) -> Self {
        let read = || -> Result<Vec<f32>, String> {
            let digest: Digest = initial.parse().map_err(|e| format!("facts: {e}"))?;
            let bytes = blobs.get(&digest).map_err(|e| e.to_string())?;
            let frame = Frame::parse(&bytes, &layout).map_err(|e| e.to_string())?;
            let mut model = vec![0.0; layout.len()];
            frame.decode(&mut model).map_err(|e| e.to_string())?;
            Ok(model)
        };
        let model = read();
        let global = plan
            .ok_or_else(|| "its run.toml is not given (--plan)".to_owned())
            .and_then(|plan| {
                let model = model
                    .clone()
                    .map_err(|_| "the first weights are not there".to_owned())?;
                Global::initial(Arc::clone(&layout), model, plan).map_err(|e| e.to_string())
            });
        Self {
            blobs,
            layout,
            model,
            global,
        }
    }

    /// Whether the sum of the frames is this model.
    fn is_model(&self, recorded: &Digest) -> Result<(), String> {
        let found = Digest::of_f32(self.model.as_ref().map_err(Clone::clone)?);
        (found == *recorded)
            .then_some(())
            .ok_or_else(|| format!("its digest is {found}, recorded is {recorded}"))
    }

    /// Adds the step of a round, and checks the model.
    fn step(&mut self, round: &Replayed) -> Result<(), String> {
        let model = self.model.as_mut().map_err(|why| why.clone())?;
        let add = |model: &mut Vec<f32>| -> Result<(), String> {
            let bytes = self.blobs.get(&round.frame).map_err(|e| e.to_string())?;
            let frame = Frame::parse(&bytes, &self.layout).map_err(|e| e.to_string())?;
            frame.accumulate(1.0, model).map_err(|e| e.to_string())
        };
        if let Err(why) = add(model) {
            self.model = Err(format!("the step of round {} is not there", round.round));
            return Err(why);
        }
        self.is_model(&round.model)
    }

    /// What is wrong with the frames of a round's updates, if their bytes are not what their digests say. Those that are gone
    /// are not wrong: they need not be kept.
    fn updates(&self, round: &Replayed) -> Option<Found> {
        let mut bytes = Vec::new();
        round
            .updates
            .iter()
            .find_map(|update| match self.blobs.read(&update.frame, &mut bytes) {
                Ok(()) | Err(BlobError::Missing(_)) => None,
                Err(why) => Some(Found::Bad(format!("the update of {}: {why}", update.client))),
            })
    }

    /// Makes the step of a round from its updates, and compares.
    fn aggregation(&mut self, round: &Replayed) -> Found {
        let global = match &mut self.global {
            Ok(global) => global,
            Err(why) => {
                let why = why.clone();
                return self.updates(round).unwrap_or(Found::Unknown(why));
            }
        };
        let gone = round
            .updates
            .iter()
            .filter(|update| matches!(self.blobs.len(&update.frame), Ok(None)));
        let gone: Vec<&str> = gone.map(|update| update.client.as_str()).collect();
        let (found, since) = if gone.is_empty() {
            match global.replay(round, |digest, bytes| self.blobs.read(digest, bytes)) {
                Ok(()) => return Found::Good,
                Err(why) => (Found::Bad(why.to_string()), "went wrong"),
            }
        } else {
            let why = format!("the updates of {} are gone (keep_updates was false)", gone.join(", "));
            (Found::Unknown(why), "could not be done again")
        };
        self.global = Err(format!("round {} {since}", round.round));
        found
    }
}
