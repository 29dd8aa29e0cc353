//! The state of a run as one client sees it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use fl_compress::Digest;

use crate::error::ProtocolError;
use crate::foreign_text::foreign_text;
use crate::limits::MAX_REASON;
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

/// The first eight bytes of a model's digest, by which two models are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelDigest(u64);

impl From<Digest> for ModelDigest {
    fn from(digest: Digest) -> Self {
        Self(digest.short())
    }
}

impl PartialEq<Digest> for ModelDigest {
    fn eq(&self, other: &Digest) -> bool {
        *self == Self::from(*other)
    }
}

impl fmt::Display for ModelDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_le_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
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
    pub model: ModelDigest,
    /// Whether this client is asked to evaluate that version.
    pub evaluate: bool,
    /// Time left until the round's deadline, if one is set.
    pub left: Option<Duration>,
    /// A message for a person.
    pub message: String,
    /// The frame of the model update that makes `version` from the version before it, or empty.
    pub step: Bytes,
    /// Most bytes of the frame of this client's update, in place of the run's budget.
    pub budget: Option<u64>,
    /// Rate of this client's uploads in millionths of the median of the cohort, as the server measured it.
    pub bandwidth: Option<u32>,
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
            model: state.model.0,
            evaluate: state.evaluate,
            left_ms: state.left.map_or(0, |left| (left.as_millis() as u64).max(1)),
            message: state.message,
            step: state.step,
            reply: None,
            budget: state.budget,
            bandwidth: state.bandwidth,
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
            model: ModelDigest(state.model),
            evaluate: state.evaluate,
            left: (state.left_ms > 0).then(|| Duration::from_millis(state.left_ms)),
            message: foreign_text(&state.message, MAX_REASON),
            step: state.step,
            budget: state.budget,
            bandwidth: state.bandwidth,
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
    fn the_digest_of_a_model_is_printed_as_the_whole_one_begins() {
        let whole = Digest::of(b"a model");
        let short = ModelDigest::from(whole);
        assert_eq!(short.to_string(), whole.to_string()[..16]);
        assert_eq!(short, whole);
        assert_ne!(short, Digest::of(b"n"));
    }

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
                model: Digest::of(b"m").into(),
                evaluate: i == 3,
                left: (i == 1).then(|| Duration::from_millis(250)),
                message: "text".into(),
                step: Bytes::from(vec![7; i]),
                budget: (i > 2).then_some(i as u64 * 1000),
                bandwidth: (i % 3 == 1).then_some(i as u32 * 1_000_000),
            };
            assert_eq!(
                RoundState::try_from(wire::RoundState::from(state.clone())).unwrap(),
                state
            );
        }
    }

    #[test]
    fn a_state_without_a_phase_that_this_program_knows_is_refused() {
        for (phase, is_known) in [(0, false), (1, true), (99, false)] {
            let state = wire::RoundState {
                phase,
                ..Default::default()
            };
            assert_eq!(RoundState::try_from(state).is_ok(), is_known, "{phase}");
        }
    }
}
