//! Which clients evaluate which version, and their results.

use fl_proto::ClientId;

use crate::config::limits::magnitudes;
use crate::state_machine::evaluated::EvaluationSum;
use crate::state_machine::round::Round;
use crate::state_machine::state::{Phase, State};
use crate::storage::record::{Claim, Limited};

impl State {
    /// Whether the run asks this client now to evaluate this version.
    pub(super) fn asks(&self, client: &ClientId, version: u64) -> bool {
        match &self.phase {
            Phase::Training(round) | Phase::Closing(round) => {
                round.number == version.saturating_add(1) && round.cohort.contains(client)
            }
            Phase::Evaluating { version: of, asked, .. } => *of == version && asked.contains(client),
            Phase::Waiting | Phase::Done | Phase::Failed { .. } => false,
        }
    }

    /// Whether the run takes evaluations of this version from clients that only evaluate. It never waits for them.
    pub(super) fn asks_evaluators(&self, version: u64) -> bool {
        match &self.phase {
            Phase::Training(round) | Phase::Closing(round) => round.number == version.saturating_add(1),
            Phase::Evaluating { version: of, .. } => *of == version,
            Phase::Waiting | Phase::Done | Phase::Failed { .. } => false,
        }
    }

    pub(super) fn reported(&self, client: &ClientId, version: u64) -> bool {
        self.evaluations
            .get(&version)
            .is_some_and(|reports| reports.contains(client))
    }

    /// The evaluations of a version, summed in client order; `None` if there are none.
    pub fn evaluations(&self, version: u64) -> Option<EvaluationSum> {
        let summed = usize::try_from(version).ok().and_then(|at| self.evaluated.get(at));
        summed.map_or_else(|| self.sum(version), |summed| *summed)
    }

    /// Replaces the reports of all versions before the last but one by their sums: no client is asked for them again.
    pub(super) fn sum_up_evaluations(&mut self) {
        let settled = self.version().saturating_sub(1);
        for version in self.evaluated.len() as u64..settled {
            self.evaluated.push(self.sum(version));
            self.evaluations.remove(&version);
        }
    }

    /// The losses of a round's trainings, and of the evaluations of the version that it trains from, whose magnitude is beyond the
    /// bound of their mean.
    pub(super) fn bounded_losses(&self, open: &Round) -> Vec<Limited> {
        let trainings = open.updates.iter();
        let trainings = trainings.map(|(client, update)| (client, update.examples, update.loss));
        let evaluations = self.evaluations.get(&open.number.saturating_sub(1)).into_iter();
        let evaluations = evaluations.flat_map(|reports| reports.iter());
        let evaluations = evaluations.map(|(client, report)| (client, report.examples, report.loss));
        let mut beyond = outliers(Claim::TrainingLoss, trainings.collect());
        beyond.extend(outliers(Claim::EvaluationLoss, evaluations.collect()));
        beyond
    }

    fn sum(&self, version: u64) -> Option<EvaluationSum> {
        let reports: Vec<_> = self.evaluations.get(&version)?.values().collect();
        let summed = EvaluationSum::of(reports.into_iter());
        (summed.clients > 0).then_some(summed)
    }
}

/// Of losses with their clients and examples, those beyond the bound.
fn outliers(of: Claim, losses: Vec<(&ClientId, u64, f64)>) -> Vec<Limited> {
    let Some((median, most)) = magnitudes(losses.iter().map(|(_, _, loss)| *loss)) else {
        return Vec::new();
    };
    let beyond = losses.into_iter().filter(|(_, _, loss)| loss.abs() > most);
    beyond
        .map(|(client, examples, loss)| Limited {
            client: client.clone(),
            of,
            claimed: examples,
            counted: examples as f64,
            norm: loss,
            reference: median,
            scale: most / loss.abs(),
        })
        .collect()
}
