//! What a client says to the server that cannot do what it is asked for.

use fl_proto::{Departure, Phase, RoundState};

use super::connection::Connection;
use super::round_watch::RoundWatch;
use crate::error::Error;
use crate::event::Event;

impl Connection<'_> {
    /// Does nothing of what the state asks for, because the client is not available.
    pub(super) async fn decline(&mut self, state: &RoundState, train: bool, why: String) -> Result<(), Error> {
        if train {
            let departure = Departure::Paused(state.round);
            return self.leave_round((state.round, state.attempt), departure, why).await;
        }
        self.skips_evaluation(state, why).await;
        self.session.evaluated = Some(state.version);
        Ok(())
    }

    pub(super) async fn report_availability(&mut self, watch: &RoundWatch) -> Result<(), Error> {
        self.guest.monitor.see();
        watch.report(self.guest.monitor.availability()).await
    }

    /// Sends no update in this attempt of the round, because the client is not available or its learner failed, and says so, so that
    /// the server asks another client.
    pub(super) async fn leave_round(
        &mut self,
        asked: (u64, u32),
        departure: Departure,
        why: String,
    ) -> Result<(), Error> {
        let (round, _) = asked;
        self.session.settled = Some(asked);
        if let Some(report) = self.session.evaluation.take() {
            self.report(report).await?;
        }
        let run = self.joined.run.clone();
        self.rpc.leave(&run, departure, why.clone()).await;
        self.events.send(Event::LeftRound { round, why });
        Ok(())
    }

    /// The server waits only for evaluations of the last model: it is told if there is none.
    pub(super) async fn skips_evaluation(&mut self, state: &RoundState, why: String) {
        tracing::debug!(version = state.version, why, "no evaluation");
        if state.phase == Phase::Evaluating {
            let departure = Departure::Evaluation(state.version);
            self.rpc.leave(&self.joined.run, departure, why).await;
        }
    }
}
