//! A client tells the server not to wait for its update.

use crate::error::ProtocolError;
use crate::foreign_text::foreign_text;
use crate::limits::MAX_REASON;
use crate::names::RunName;
use crate::wire;

/// What a client leaves. It determines how long the server does not wait for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// This round: the client stays connected and takes part in the next.
    Round(u64),
    /// As `Round`, because the conditions of the device do not allow it to train.
    Paused(u64),
    /// The evaluation of this model version: the client has no held-out examples, or its evaluation failed.
    Evaluation(u64),
    /// The run, because the client's learner is for another model, or cannot be made.
    Learner,
    /// The run, because of another problem that a person must fix.
    Failure,
}

/// Which part of a run a client leaves, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaveRequest {
    /// The run.
    pub run: RunName,
    /// What it leaves.
    pub departure: Departure,
    /// For a person: at most [`MAX_REASON`] bytes on one line.
    pub reason: String,
}

impl From<LeaveRequest> for wire::LeaveRequest {
    fn from(request: LeaveRequest) -> Self {
        let LeaveRequest { run, departure, reason } = request;
        let (kind, round) = match departure {
            Departure::Round(round) => (wire::Departure::Round, round),
            Departure::Paused(round) => (wire::Departure::Paused, round),
            Departure::Evaluation(version) => (wire::Departure::Evaluation, version),
            Departure::Learner => (wire::Departure::Learner, 0),
            Departure::Failure => (wire::Departure::Failure, 0),
        };
        Self {
            run: run.to_string(),
            departure: kind.into(),
            round,
            reason: foreign_text(&reason, MAX_REASON),
        }
    }
}

impl TryFrom<wire::LeaveRequest> for LeaveRequest {
    type Error = ProtocolError;

    fn try_from(request: wire::LeaveRequest) -> Result<Self, ProtocolError> {
        let departure = match request.departure() {
            wire::Departure::Unspecified => return Err(ProtocolError::Missing("departure")),
            wire::Departure::Round => Departure::Round(request.round),
            wire::Departure::Paused => Departure::Paused(request.round),
            wire::Departure::Evaluation => Departure::Evaluation(request.round),
            wire::Departure::Learner => Departure::Learner,
            wire::Departure::Failure => Departure::Failure,
        };
        Ok(Self {
            run: request.run.parse()?,
            departure,
            reason: foreign_text(&request.reason, MAX_REASON),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departures_survive_the_wire() {
        for departure in [
            Departure::Round(3),
            Departure::Paused(4),
            Departure::Evaluation(2),
            Departure::Learner,
            Departure::Failure,
        ] {
            let request = LeaveRequest {
                run: "r".parse().unwrap(),
                departure,
                reason: "why".into(),
            };
            let wire = wire::LeaveRequest::from(request.clone());
            assert_eq!(LeaveRequest::try_from(wire).unwrap(), request);
        }
        assert!(LeaveRequest::try_from(wire::LeaveRequest::default()).is_err());
    }

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let mut wire = wire::LeaveRequest {
            run: "r".into(),
            reason: "a\u{1b}[2J\nb".into(),
            ..Default::default()
        };
        wire.set_departure(wire::Departure::Failure);
        assert_eq!(LeaveRequest::try_from(wire.clone()).unwrap().reason, "a [2J b");
        wire.reason = "ä".repeat(MAX_REASON);
        assert!(LeaveRequest::try_from(wire).unwrap().reason.len() <= MAX_REASON);
    }
}
