//! The state of the run as one client sees it.

use std::time::Duration;

use bytes::Bytes;
use fl_proto::{ClientId, RoundState};

use crate::clock::Millis;
use crate::config::plan::RunPlan;
use crate::state_machine::state::{Phase, State};
use crate::storage::record::{Limited, Record};

impl Record {
    /// Whether a client may see something new after this record. It knows already what came of its own calls: that its update or
    /// its evaluation counts.
    pub(crate) fn is_told(&self) -> bool {
        !matches!(
            self,
            Self::UpdateAccepted { .. } | Self::UploadMeasured { .. } | Self::EvaluationAccepted { .. }
        )
    }
}

impl State {
    /// The message of `Watch` at `now` to a client that only evaluates: it is asked to evaluate every version from which a round
    /// trains, and the last one.
    pub fn view_of_evaluator(&self, plan: &RunPlan, client: &ClientId, now: Millis) -> RoundState {
        let view = self.view(plan, client, now);
        let version = view.version;
        let asked = plan.evaluate && version > 0 && self.asks_evaluators(version);
        RoundState {
            evaluate: asked && !self.reported(client, version),
            ..view
        }
    }

    /// The message of `Watch` to `client` at `now`.
    pub fn view(&self, plan: &RunPlan, client: &ClientId, now: Millis) -> RoundState {
        use fl_proto::Phase as Seen;
        let left = |until: Millis| Some(Duration::from_millis(until.saturating_sub(now).max(1)));
        let version = self.version();
        let held = self.held.as_ref().map_or(version, |round| round.number);
        let (round, phase, left, message) = match &self.phase {
            Phase::Waiting => (
                held,
                Seen::Waiting,
                None,
                format!("waiting for {} clients to be connected", plan.cohort.min),
            ),
            Phase::Training(round) => {
                // Another attempt has another deadline, so it is news. No more is said: every byte goes to every client.
                let again = match round.attempt {
                    1 => String::new(),
                    attempt => format!("attempt {attempt}"),
                };
                (round.number, Seen::Training, left(round.deadline), again)
            }
            Phase::Closing(round) => (round.number, Seen::Closing, None, String::new()),
            Phase::Evaluating { version, until, .. } => (*version, Seen::Evaluating, left(*until), String::new()),
            Phase::Done => (version, Seen::Done, None, String::new()),
            Phase::Failed { round, why } => (
                *round,
                Seen::Failed,
                None,
                format!("{why}; starting the server again tries again"),
            ),
        };
        let mine = self.limited.iter().filter(|limited| limited.client == *client);
        let mine = mine.filter(|limited| limited.is_conspicuous()).map(Limited::to_string);
        let message = Some(message)
            .filter(|message| !message.is_empty())
            .into_iter()
            .chain(mine);
        let message = message.collect::<Vec<_>>().join("; ");
        let open = self.round();
        RoundState {
            round,
            phase,
            selected: open.is_some_and(|open| open.cohort.contains(client)),
            attempt: open.and_then(|open| open.asked_in.get(client)).copied().unwrap_or(0),
            accepted: open.and_then(|open| {
                let counted = open.updates.get(client).map(|update| update.digest);
                counted.or_else(|| open.excluded.get(client).copied().flatten())
            }),
            version,
            model: self.model().into(),
            evaluate: plan.evaluate && version > 0 && self.asks(client, version) && !self.reported(client, version),
            left,
            message,
            step: Bytes::new(),
            budget: open.and_then(|open| open.budgets.get(client)).copied(),
            bandwidth: open.and_then(|open| open.bandwidths.get(client)).copied(),
        }
    }
}
