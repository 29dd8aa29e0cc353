//! The state of the run as one client sees it.

use std::time::Duration;

use fl_proto::{ClientId, RoundState};

use crate::clock::Millis;
use crate::config::plan::RunPlan;
use crate::state_machine::state::{Phase, State};

impl State {
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
                // Without anything that changes when other clients answer: each answer would be sent to every client.
                let asked = format!("{} clients are asked", round.cohort.len());
                let asked = match round.attempt {
                    1 => asked,
                    attempt => format!("{asked}, attempt {attempt}"),
                };
                (round.number, Seen::Training, left(round.deadline), asked)
            }
            Phase::Closing(round) => (
                round.number,
                Seen::Closing,
                None,
                format!("averaging {} updates", round.updates.len()),
            ),
            Phase::Evaluating { version, until, .. } => (
                *version,
                Seen::Evaluating,
                left(*until),
                "evaluating the last model".to_owned(),
            ),
            Phase::Done => (version, Seen::Done, None, format!("done after {} rounds", self.depth())),
            Phase::Failed { round, why } => (
                *round,
                Seen::Failed,
                None,
                format!("{why}; starting the server again tries again"),
            ),
        };
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
            model: self.model(),
            evaluate: plan.evaluate && version > 0 && self.asks(client, version) && !self.reported(client, version),
            left,
            message,
        }
    }
}
