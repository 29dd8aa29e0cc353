//! What a run's rounds did, added up from its records: the figures that people look at.

use std::collections::BTreeMap;

use fl_compress::Digest;

use crate::event::{Evaluated, RoundSummary, bits};
use crate::ledger::Flow;
use crate::record::{Accepted, Millis, Record};

/// Sums over a run's records. Its size is that of the rounds.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Rounds by number.
    pub rounds: BTreeMap<u64, Round>,
    /// Evaluations by model version.
    pub evaluations: BTreeMap<u64, Evaluation>,
    /// Digest of the initial model.
    pub initial: Option<Digest>,
    /// How the run ended, if it did.
    pub end: Option<End>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All rounds are done.
    Done,
    /// The run gave up in this round.
    Failed {
        /// The round.
        round: u64,
        /// Why.
        why: String,
    },
}

/// Sums of one round.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// When it was first opened.
    pub opened: Millis,
    /// Times it was opened.
    pub attempts: u32,
    /// Clients asked at its last opening.
    pub cohort: usize,
    /// Updates counted.
    pub updates: usize,
    /// Examples behind them.
    pub examples: u64,
    /// Training loss, times examples.
    pub loss: f64,
    /// Bytes of the updates' frames, as their senders say.
    pub framed: u64,
    /// What came of it.
    pub closed: Option<Step>,
}

/// What a round became.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Digest of the step's frame.
    pub frame: Digest,
    /// Its bytes.
    pub len: u64,
    /// Digest of the new model.
    pub model: Digest,
    /// When it was ready.
    pub at: Millis,
}

/// Sums of one model version's evaluations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evaluation {
    /// Clients that reported.
    pub clients: usize,
    /// Their examples.
    pub examples: u64,
    /// Loss, times examples.
    pub loss: f64,
    /// Examples classified correctly.
    pub correct: u64,
}

impl History {
    /// Takes one record into the sums. Records of one run come in order.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Started { model, .. } => self.initial = Some(*model),
            Record::RoundOpened { round, cohort, at, .. } => {
                self.end = None;
                let sums = self.rounds.entry(*round).or_default();
                if sums.attempts == 0 {
                    sums.opened = *at;
                }
                sums.attempts += 1;
                sums.cohort = cohort.len();
            }
            Record::UpdateAccepted { round, update, .. } => self.add_update(*round, update),
            Record::RoundClosed {
                round,
                frame,
                frame_len,
                model,
                at,
                ..
            } => {
                let step = Step {
                    frame: *frame,
                    len: *frame_len,
                    model: *model,
                    at: *at,
                };
                self.rounds.entry(*round).or_default().closed = Some(step);
            }
            Record::EvaluationAccepted {
                version,
                examples,
                loss,
                correct,
                ..
            } => {
                let sums = self.evaluations.entry(*version).or_default();
                sums.clients += 1;
                sums.examples = sums.examples.saturating_add(*examples);
                sums.loss += loss * *examples as f64;
                sums.correct = sums.correct.saturating_add(*correct);
            }
            Record::RunDone { .. } => self.end = Some(End::Done),
            Record::RunFailed { round, why, .. } => {
                self.end = Some(End::Failed {
                    round: *round,
                    why: why.clone(),
                })
            }
            Record::Resumed { .. } => {
                if matches!(self.end, Some(End::Failed { .. })) {
                    self.end = None;
                }
            }
            Record::Gathered { .. } | Record::RoundClosing { .. } | Record::EvaluationOpened { .. } => {}
        }
    }

    fn add_update(&mut self, round: u64, update: &Accepted) {
        let sums = self.rounds.entry(round).or_default();
        sums.updates += 1;
        sums.examples = sums.examples.saturating_add(update.examples);
        sums.loss += update.loss * update.examples as f64;
        sums.framed = sums.framed.saturating_add(update.stages.framed);
    }

    /// Evaluation of one version, if any client reported it.
    pub fn evaluated(&self, version: u64) -> Option<Evaluated> {
        let sums = self.evaluations.get(&version).filter(|sums| sums.examples > 0)?;
        let examples = sums.examples as f64;
        let (accuracy, loss) = (sums.correct as f64 / examples, sums.loss / examples);
        Some(Evaluated {
            version,
            examples: sums.examples,
            accuracy,
            loss,
        })
    }

    /// What a closed round did; `flow` is what the ledger has of it, `parameters` the size of the model.
    pub fn summary(&self, round: u64, flow: Flow, parameters: usize) -> Option<RoundSummary> {
        let sums = self.rounds.get(&round)?;
        let step = sums.closed?;
        Some(RoundSummary {
            round,
            updates: sums.updates,
            loss: if sums.examples > 0 {
                sums.loss / sums.examples as f64
            } else {
                0.0
            },
            seconds: step.at.saturating_sub(sums.opened) as f64 / 1000.0,
            flow,
            bits_up: bits(sums.framed, sums.updates, parameters),
            bits_down: bits(step.len, 1, parameters),
        })
    }
}
