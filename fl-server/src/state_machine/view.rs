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

    pub fn view(&self, plan: &RunPlan, client: &ClientId, now: Millis) -> RoundState {
        let version = self.version();
        let mut round = version;
        let mut left = None;
        let mut message = String::new();
        let phase = match &self.phase {
            Phase::Waiting => {
                round = self.held.as_ref().map_or(version, |held| held.number);
                message = format!("waiting for {} clients to be connected", plan.cohort.min);
                fl_proto::Phase::Waiting
            }
            Phase::Training(open) => {
                round = open.number;
                left = Some(open.deadline);
                // Another attempt has another deadline, so it is news. No more is said: every byte goes to every client.
                if open.attempt != 1 {
                    message = format!("attempt {}", open.attempt);
                }
                fl_proto::Phase::Training
            }
            Phase::Closing(open) => {
                round = open.number;
                fl_proto::Phase::Closing
            }
            Phase::Evaluating { version, until, .. } => {
                round = *version;
                left = Some(*until);
                fl_proto::Phase::Evaluating
            }
            Phase::Done => fl_proto::Phase::Done,
            Phase::Failed { round: failed, why } => {
                round = *failed;
                message = format!("{why}; starting the server again tries again");
                fl_proto::Phase::Failed
            }
        };
        let mine = self.limited.iter().filter(|limited| limited.client == *client);
        let mine = mine.filter(|limited| limited.is_conspicuous()).map(Limited::to_string);
        let message = Some(message).filter(|message| !message.is_empty());
        let message = message.into_iter().chain(mine).collect::<Vec<_>>().join("; ");
        let open = self.round();
        RoundState {
            round,
            phase,
            selected: open.is_some_and(|open| open.cohort.contains(client)),
            attempt: open.and_then(|open| open.asked_in.get(client)).copied().unwrap_or(0),
            accepted: open.and_then(|open| open.accepted(client)),
            version,
            model: self.model().into(),
            evaluate: plan.evaluate && version > 0 && self.asks(client, version) && !self.reported(client, version),
            left: left.map(|until| Duration::from_millis(until.saturating_sub(now).max(1))),
            message,
            step: Bytes::new(),
            budget: open.and_then(|open| open.budgets.get(client)).copied(),
            bandwidth: open.and_then(|open| open.bandwidths.get(client)).copied(),
        }
    }
}
