//! The state of a run as one client sees it.

use std::time::Duration;

use fl_compress::Digest;

use crate::error::ProtocolError;
use crate::update::digest;
use crate::wire;

/// Phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Too few clients are connected to begin.
    Waiting,
    /// The cohort trains and submits.
    Training,
    /// The round's updates are being aggregated.
    Closing,
    /// The last model is being evaluated.
    Evaluating,
    /// The run is over.
    Done,
    /// The run failed.
    Failed,
}

/// One message of the watch stream. Each message is complete by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundState {
    /// The current round, from 1; 0 before the first.
    pub round: u64,
    /// Phase of the run.
    pub phase: Phase,
    /// Whether this client is in the round's cohort.
    pub selected: bool,
    /// The attempt of the round in which the server asked this client; 0 if the client is not in the cohort.
    pub attempt: u32,
    /// This client's accepted update of this round.
    pub accepted: Option<Digest>,
    /// Model version to train from, or to evaluate.
    pub version: u64,
    /// Digest of that model.
    pub model: Digest,
    /// Whether this client is asked to evaluate that version.
    pub evaluate: bool,
    /// Time left until the round's deadline, if one is set.
    pub left: Option<Duration>,
    /// A message for a person.
    pub message: String,
}

impl From<RoundState> for wire::RoundState {
    fn from(state: RoundState) -> Self {
        Self {
            round: state.round,
            phase: wire::Phase::from(state.phase).into(),
            selected: state.selected,
            attempt: state.attempt,
            accepted: state
                .accepted
                .map(|digest| digest.0.to_vec())
                .unwrap_or_default()
                .into(),
            version: state.version,
            model: state.model.0.to_vec().into(),
            evaluate: state.evaluate,
            left_ms: state.left.map_or(0, |left| (left.as_millis() as u64).max(1)),
            message: state.message,
        }
    }
}

impl TryFrom<wire::RoundState> for RoundState {
    type Error = ProtocolError;

    fn try_from(state: wire::RoundState) -> Result<Self, ProtocolError> {
        let phase = match state.phase() {
            wire::Phase::Unspecified => return Err(ProtocolError::Missing("phase")),
            wire::Phase::Waiting => Phase::Waiting,
            wire::Phase::Training => Phase::Training,
            wire::Phase::Closing => Phase::Closing,
            wire::Phase::Evaluating => Phase::Evaluating,
            wire::Phase::Done => Phase::Done,
            wire::Phase::Failed => Phase::Failed,
        };
        Ok(Self {
            round: state.round,
            phase,
            selected: state.selected,
            attempt: state.attempt,
            accepted: (!state.accepted.is_empty())
                .then(|| digest("accepted", &state.accepted))
                .transpose()?,
            version: state.version,
            model: digest("model", &state.model)?,
            evaluate: state.evaluate,
            left: (state.left_ms > 0).then(|| Duration::from_millis(state.left_ms)),
            message: state.message,
        })
    }
}

impl From<Phase> for wire::Phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Waiting => Self::Waiting,
            Phase::Training => Self::Training,
            Phase::Closing => Self::Closing,
            Phase::Evaluating => Self::Evaluating,
            Phase::Done => Self::Done,
            Phase::Failed => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_the_wire() {
        let phases = [
            Phase::Waiting,
            Phase::Training,
            Phase::Closing,
            Phase::Evaluating,
            Phase::Done,
            Phase::Failed,
        ];
        for (i, phase) in phases.into_iter().enumerate() {
            let state = RoundState {
                round: 3,
                phase,
                selected: i % 2 == 0,
                attempt: i as u32,
                accepted: (i % 2 == 1).then(|| Digest::of(b"u")),
                version: 2,
                model: Digest::of(b"m"),
                evaluate: i == 3,
                left: (i == 1).then(|| Duration::from_millis(250)),
                message: "text".into(),
            };
            assert_eq!(
                RoundState::try_from(wire::RoundState::from(state.clone())).unwrap(),
                state
            );
        }
    }

    #[test]
    fn a_state_without_a_phase_or_with_a_short_digest_is_refused() {
        let good = wire::RoundState {
            phase: 1,
            model: vec![0; 32].into(),
            ..Default::default()
        };
        assert!(RoundState::try_from(good.clone()).is_ok());
        assert!(
            RoundState::try_from(wire::RoundState {
                phase: 0,
                ..good.clone()
            })
            .is_err()
        );
        assert!(
            RoundState::try_from(wire::RoundState {
                phase: 99,
                ..good.clone()
            })
            .is_err()
        );
        assert!(
            RoundState::try_from(wire::RoundState {
                model: vec![0; 31].into(),
                ..good
            })
            .is_err()
        );
    }
}
