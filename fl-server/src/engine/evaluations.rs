//! What clients found when they evaluated a model version on their own held-out examples.

use fl_proto::ClientId;

use super::{Phase, State};
use crate::record::Millis;

/// One client's evaluation of one version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluated {
    /// Examples.
    pub examples: u64,
    /// Mean loss over them.
    pub loss: f64,
    /// How many were classified correctly.
    pub correct: u64,
    /// When it was accepted.
    pub at: Millis,
}

/// All evaluations of one version, each example counting once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summed {
    /// Clients that reported.
    pub clients: usize,
    /// Examples of all.
    pub examples: u64,
    /// Mean loss over the examples.
    pub loss: f64,
    /// Examples classified correctly.
    pub correct: u64,
}

impl Summed {
    /// The part of the examples that was classified correctly, 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.examples.max(1) as f64
    }
}

impl State {
    /// Whether this client is asked for its evaluation of this version now.
    pub(super) fn asks(&self, client: &ClientId, version: u64) -> bool {
        match &self.phase {
            Phase::Training(round) | Phase::Closing(round) => {
                round.number == version.saturating_add(1) && round.cohort.contains(client)
            }
            Phase::Evaluating { version: of, asked, .. } => *of == version && asked.contains(client),
            Phase::Waiting | Phase::Done | Phase::Failed { .. } => false,
        }
    }

    /// Whether this client's evaluation of this version was accepted.
    pub(super) fn reported(&self, client: &ClientId, version: u64) -> bool {
        self.evaluations
            .get(&version)
            .is_some_and(|reports| reports.contains_key(client))
    }

    /// The evaluations of a version, summed in client order; `None` if there are none.
    pub fn evaluations(&self, version: u64) -> Option<Summed> {
        let summed = usize::try_from(version).ok().and_then(|at| self.evaluated.get(at));
        summed.map_or_else(|| self.sum(version), |summed| *summed)
    }

    /// Forgets who reported what of the versions before the last but one: nobody is asked for them again.
    pub(super) fn sum_up_evaluations(&mut self) {
        let settled = self.version().saturating_sub(1);
        for version in self.evaluated.len() as u64..settled {
            self.evaluated.push(self.sum(version));
            self.evaluations.remove(&version);
        }
    }

    fn sum(&self, version: u64) -> Option<Summed> {
        let reports = self.evaluations.get(&version).filter(|reports| !reports.is_empty())?;
        let examples = reports.values().fold(0u64, |n, e| n.saturating_add(e.examples));
        let loss = reports.values().map(|e| e.loss * e.examples as f64).sum::<f64>() / examples.max(1) as f64;
        let correct = reports.values().fold(0u64, |n, e| n.saturating_add(e.correct));
        Some(Summed {
            clients: reports.len(),
            examples,
            loss,
            correct,
        })
    }
}
