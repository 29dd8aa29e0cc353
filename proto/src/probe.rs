//! Measuring a connection without joining a run.

use std::time::Duration;

use crate::error::ProtocolError;
use crate::foreign_text::foreign_text;
use crate::join::{Joined, check_version, read_tasks};
use crate::joined_run::{JoinedRun, read_join};
use crate::limits::{MAX_PROBE, MAX_REASON, PROTOCOL_MAJOR, PROTOCOL_MINOR};
use crate::wire;

/// The beginning of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeHeader {
    /// Tasks for which the client has a learner and data.
    pub tasks: Vec<String>,
    /// Bytes that the server is to send, at most [`MAX_PROBE`].
    pub bytes: usize,
}

impl From<ProbeHeader> for wire::ProbeHeader {
    fn from(header: ProbeHeader) -> Self {
        Self {
            protocol_major: PROTOCOL_MAJOR,
            protocol_minor: PROTOCOL_MINOR,
            tasks: header.tasks,
            bytes: u32::try_from(header.bytes).unwrap_or(u32::MAX),
        }
    }
}

impl TryFrom<wire::ProbeHeader> for ProbeHeader {
    type Error = ProtocolError;

    fn try_from(header: wire::ProbeHeader) -> Result<Self, ProtocolError> {
        check_version(header.protocol_major, header.protocol_minor)?;
        let bytes = usize::try_from(header.bytes).ok().filter(|bytes| *bytes <= MAX_PROBE);
        Ok(Self {
            bytes: bytes
                .ok_or_else(|| ProtocolError::invalid("bytes", format!("{} is above {MAX_PROBE}", header.bytes)))?,
            tasks: read_tasks(&header.tasks)?,
        })
    }
}

/// What a server says of itself and its run to a client that measures the connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Probed {
    /// The server's clock: time since 1970, to the millisecond.
    pub clock: Duration,
    /// Why the server would refuse this client's `Join`, if so.
    pub refusal: Option<String>,
    /// What it would answer otherwise.
    pub run: Joined,
    /// Time limit of a round.
    pub deadline: Duration,
    /// Mean bytes of an update's frame in the last closed round; `None` before the first.
    pub update_bytes: Option<u64>,
    /// Bytes of the last model update; `None` before the first.
    pub step_bytes: Option<u64>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Probed {
    /// The message.
    ///
    /// # Errors
    /// Those of [`JoinedRun::of`].
    pub fn to_wire(&self) -> Result<wire::ProbeResult, ProtocolError> {
        Ok(wire::ProbeResult {
            unix_ms: millis(self.clock),
            refusal: self.refusal.clone().unwrap_or_default(),
            run: Some(JoinedRun::of(&self.run)?.reply(&self.run.client, None, None)),
            deadline_ms: millis(self.deadline),
            update_bytes: self.update_bytes.unwrap_or(0),
            step_bytes: self.step_bytes.unwrap_or(0),
        })
    }
}

impl TryFrom<wire::ProbeResult> for Probed {
    type Error = ProtocolError;

    fn try_from(result: wire::ProbeResult) -> Result<Self, ProtocolError> {
        let known = |bytes: u64| Some(bytes).filter(|bytes| *bytes > 0);
        Ok(Self {
            clock: Duration::from_millis(result.unix_ms),
            refusal: Some(foreign_text(&result.refusal, MAX_REASON)).filter(|text| !text.is_empty()),
            run: read_join(result.run.unwrap_or_default(), None)?.0,
            deadline: Duration::from_millis(result.deadline_ms),
            update_bytes: known(result.update_bytes),
            step_bytes: known(result.step_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire_and_one_out_of_range_is_refused() {
        let header = ProbeHeader {
            tasks: vec!["digits".to_owned()],
            bytes: MAX_PROBE,
        };
        let wire = wire::ProbeHeader::from(header.clone());
        assert_eq!(ProbeHeader::try_from(wire.clone()), Ok(header));
        let tasks = vec![String::new(); crate::MAX_TASKS + 1];
        for (wrong, named) in [
            (
                wire::ProbeHeader {
                    protocol_major: 2,
                    ..wire.clone()
                },
                "protocol_major",
            ),
            (
                wire::ProbeHeader {
                    bytes: MAX_PROBE as u32 + 1,
                    ..wire.clone()
                },
                "bytes",
            ),
            (wire::ProbeHeader { tasks, ..wire }, "tasks"),
        ] {
            let error = ProbeHeader::try_from(wrong).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_result_without_a_run_is_refused() {
        let run = Some(wire::JoinReply {
            client: "a".to_owned(),
            ..wire::JoinReply::default()
        });
        let error = Probed::try_from(wire::ProbeResult {
            run,
            ..Default::default()
        })
        .unwrap_err();
        assert_eq!(error, ProtocolError::Missing("run"));
    }
}
