//! Sums over a run's records, by round: the figures of displays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fl_proto::{ClientId, Metrics};

use crate::accounting::baseline::{self, BaselineModels, RunEnd};
use crate::accounting::ledger::Flow;
use crate::clock::seconds;
use crate::config::limits::mean_loss;
use crate::reporting::means::{Means, MetricNames, named};
use crate::state_machine::{ClientEvaluation, EvaluationSum};
use crate::storage::record::{Accepted, Millis, Record};
use crate::telemetry::event::{ModelEvaluation, RoundSummary, bits};

/// Sums over a run's records. Its size is that of the rounds.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub rounds: BTreeMap<u64, Round>,
    pub evaluations: BTreeMap<u64, Evaluation>,
    pub end: Option<End>,
    trained: MetricNames,
    measured: MetricNames,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Done,
    Failed { round: u64, why: String },
}

#[derive(Debug, Clone, Default)]
pub struct Round {
    pub opened: Millis,
    pub attempts: u32,
    /// Clients asked at its last opening.
    pub cohort: usize,
    pub updates: usize,
    /// Of them, those that do not count because their clients were excluded.
    excluded: usize,
    /// Examples behind them.
    pub examples: u64,
    /// Mean training loss, with the bounded weights of aggregation; known once the round has closed.
    loss: Option<f64>,
    /// While the round is open: examples and losses of the updates.
    losses: BTreeMap<ClientId, (u64, f64)>,
    /// Metrics of the trainings, averaged; known once the round has closed.
    means: Means,
    /// While the round is open: metrics of the updates that have any.
    metrics: BTreeMap<ClientId, Arc<Metrics>>,
    pub framed: u64,
    pub closed: Option<Closing>,
}

#[derive(Debug, Clone, Copy)]
pub struct Closing {
    pub at: Millis,
    pub frame_len: u64,
}

#[derive(Debug, Clone)]
pub enum Evaluation {
    /// Open: more may arrive.
    Open(BTreeMap<ClientId, ClientEvaluation>),
    /// Settled, as a sum, and its metrics averaged.
    Summed(EvaluationSum, Means),
}

impl Default for Evaluation {
    fn default() -> Self {
        Self::Open(BTreeMap::new())
    }
}

impl Evaluation {
    pub fn summed(&self) -> EvaluationSum {
        match self {
            Self::Open(reports) => EvaluationSum::of(reports.values()),
            Self::Summed(summed, _) => *summed,
        }
    }

    /// Their metrics so far, averaged, and counted among `names` if they are not yet.
    fn means(&self, names: &mut MetricNames) -> Means {
        match self {
            Self::Open(reports) => names.settle(reports.values().map(|report| &*report.metrics)),
            Self::Summed(_, means) => means.clone(),
        }
    }
}

impl Round {
    /// Mean training loss of the updates so far; `None` if there are none.
    pub fn mean_loss(&self) -> Option<f64> {
        self.loss.or_else(|| mean_loss(self.losses.values().copied()))
    }

    /// From its opening to its model, once it has closed.
    pub(crate) fn seconds(&self) -> Option<f64> {
        Some(seconds(self.closed?.at, self.opened))
    }
}

impl History {
    /// Adds one record. Records of a run must be added in order.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::RoundOpened { round, cohort, at, .. } => {
                self.end = None;
                let sums = self.rounds.entry(*round).or_default();
                if sums.attempts == 0 {
                    sums.opened = *at;
                }
                sums.attempts += 1;
                sums.cohort = cohort.len();
            }
            Record::MembersReplaced { round, by, .. } => self.rounds.entry(*round).or_default().cohort += by.len(),
            Record::UpdateAccepted { round, client, update } => self.add_update(*round, client, update),
            Record::RoundClosed { round, step, at, .. } => {
                let sums = self.rounds.entry(*round).or_default();
                sums.loss = sums.mean_loss();
                sums.losses.clear();
                let metrics = std::mem::take(&mut sums.metrics);
                sums.means = self.trained.settle(metrics.values().map(|metrics| &**metrics));
                sums.closed = Some(Closing {
                    at: *at,
                    frame_len: step.frame_len,
                });
                // Clients evaluate the newest two versions only.
                let settled = self.evaluations.range_mut(..round.saturating_sub(1)).rev();
                for (_, evaluation) in settled.take_while(|(_, found)| matches!(found, Evaluation::Open(_))) {
                    let means = evaluation.means(&mut self.measured);
                    *evaluation = Evaluation::Summed(evaluation.summed(), means);
                }
            }
            Record::EvaluationAccepted {
                version,
                client,
                evaluation,
            } => {
                if let Evaluation::Open(reports) = self.evaluations.entry(*version).or_default() {
                    reports.insert(client.clone(), evaluation.clone());
                }
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
            Record::RolledBack { .. } => self.end = None,
            Record::Excluded { round, client, .. } => {
                let sums = self.rounds.entry(*round).or_default();
                sums.excluded += usize::from(sums.losses.remove(client).is_some());
                sums.metrics.remove(client);
            }
            Record::Started { .. }
            | Record::Gathered { .. }
            | Record::RoundClosing { .. }
            | Record::EvaluationOpened { .. }
            | Record::BudgetsSet { .. }
            | Record::BandwidthsSet { .. }
            | Record::UploadMeasured { .. } => {}
        }
    }

    fn add_update(&mut self, round: u64, client: &ClientId, update: &Accepted) {
        let sums = self.rounds.entry(round).or_default();
        sums.updates += 1;
        sums.examples = sums.examples.saturating_add(update.examples);
        sums.losses.insert(client.clone(), (update.examples, update.loss));
        sums.framed = sums.framed.saturating_add(update.stages.framed);
        if !update.metrics.is_empty() {
            sums.metrics.insert(client.clone(), Arc::clone(&update.metrics));
        }
    }

    /// Metrics of the trainings of a round so far, averaged.
    pub(crate) fn trained(&self, round: u64) -> BTreeMap<String, f64> {
        let Some(sums) = self.rounds.get(&round) else {
            return BTreeMap::new();
        };
        if sums.metrics.is_empty() {
            return named(&sums.means);
        }
        named(
            &self
                .trained
                .clone()
                .settle(sums.metrics.values().map(|metrics| &**metrics)),
        )
    }

    /// Names of metrics that a table of all rounds shows, of trainings and of evaluations.
    pub(crate) fn metric_names(&self) -> [BTreeSet<Arc<str>>; 2] {
        let mut trained = self.trained.clone();
        let mut measured = self.measured.clone();
        for sums in self.rounds.values().filter(|sums| !sums.metrics.is_empty()) {
            trained.settle(sums.metrics.values().map(|metrics| &**metrics));
        }
        for evaluation in self.evaluations.values() {
            evaluation.means(&mut measured);
        }
        [trained.shown().collect(), measured.shown().collect()]
    }

    /// Whether the client reported an evaluation of this version, of which more may arrive.
    pub fn has_evaluation(&self, version: u64, client: &ClientId) -> bool {
        match self.evaluations.get(&version) {
            Some(Evaluation::Open(reports)) => reports.contains_key(client),
            _ => false,
        }
    }

    /// Evaluation of one version, if any client reported it.
    pub fn evaluated(&self, version: u64) -> Option<ModelEvaluation> {
        let evaluation = self.evaluations.get(&version)?;
        let summed = evaluation.summed();
        let metrics = named(&evaluation.means(&mut self.measured.clone()));
        (summed.examples > 0).then(|| ModelEvaluation {
            version,
            examples: summed.examples,
            accuracy: summed.accuracy(),
            perplexity: summed.perplexity(),
            loss: summed.loss,
            metrics,
        })
    }

    /// Clients that fetched the newest model only to evaluate it: while a round is open, clients that evaluate also
    /// train.
    fn last_evaluation(&self) -> u64 {
        let newest = self.rounds.last_key_value().map_or(0, |(round, _)| *round);
        self.evaluations
            .get(&newest)
            .map_or(0, |found| found.summed().clients as u64)
    }

    /// The frames that federated averaging would have sent for the rounds that can be compared. `withheld`: models that
    /// connected clients have not fetched yet.
    pub(crate) fn compared(&self, withheld: u64) -> BaselineModels {
        let done = matches!(self.end, Some(End::Done)).then(|| RunEnd {
            evaluated: self.last_evaluation(),
            withheld,
        });
        let rounds = self.rounds.iter().map(|(round, sums)| baseline::Round {
            round: *round,
            closed: sums.closed.is_some(),
            asked: sums.cohort as u64,
            updates: sums.updates as u64,
        });
        baseline::compared(rounds, done)
    }

    /// The summary of a closed round. `flow`: its bytes in the ledger. `parameters`: values of the model.
    pub fn summary(&self, round: u64, flow: Flow, parameters: usize) -> Option<RoundSummary> {
        let sums = self.rounds.get(&round)?;
        let closed = sums.closed?;
        Some(RoundSummary {
            round,
            updates: sums.updates - sums.excluded,
            loss: sums.mean_loss().unwrap_or(0.0),
            seconds: seconds(closed.at, sums.opened),
            flow,
            bits_up: bits(sums.framed, sums.updates, parameters),
            bits_down: bits(closed.frame_len, 1, parameters),
            metrics: self.trained(round),
        })
    }
}
