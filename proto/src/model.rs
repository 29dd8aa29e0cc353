//! Fetching the model: the request, and the table of the frames that follow; and fetching its base.

use fl_compress::{Digest, FrameKind};
use serde::{Deserialize, Serialize};

use crate::error::ProtocolError;
use crate::limits::MAX_CHAIN;
use crate::names::RunName;
use crate::update::digest;
use crate::wire;

/// The version that a client holds and the version that it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// The run.
    pub run: RunName,
    /// Version held, if any.
    pub held: Option<u64>,
    /// Version wanted.
    pub want: u64,
    /// What an interrupted fetch has left.
    pub partial: Option<PartialFrame>,
}

/// The first bytes of a frame, which an interrupted fetch has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialFrame {
    /// Digest of the whole frame.
    pub digest: Digest,
    /// Bytes that the client has.
    pub held: u64,
}

impl From<FetchRequest> for wire::FetchRequest {
    fn from(request: FetchRequest) -> Self {
        Self {
            run: request.run.to_string(),
            held: request.held,
            want: request.want,
            partial: request.partial.map(|partial| wire::PartialFrame {
                digest: partial.digest.0.to_vec().into(),
                held: partial.held,
            }),
        }
    }
}

impl TryFrom<wire::FetchRequest> for FetchRequest {
    type Error = ProtocolError;

    fn try_from(request: wire::FetchRequest) -> Result<Self, ProtocolError> {
        Ok(Self {
            run: request.run.parse()?,
            held: request.held,
            want: request.want,
            partial: match request.partial {
                None => None,
                Some(partial) => Some(PartialFrame {
                    digest: digest("partial", &partial.digest)?,
                    held: partial.held,
                }),
            },
        })
    }
}

/// The base that a client wants the rest of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseRequest {
    /// The run.
    pub run: RunName,
    /// Digest of the base.
    pub base: Digest,
    /// Bytes that the client has.
    pub offset: u64,
}

impl From<BaseRequest> for wire::BaseRequest {
    fn from(request: BaseRequest) -> Self {
        Self {
            run: request.run.to_string(),
            base: request.base.0.to_vec().into(),
            offset: request.offset,
        }
    }
}

impl TryFrom<wire::BaseRequest> for BaseRequest {
    type Error = ProtocolError;

    fn try_from(request: wire::BaseRequest) -> Result<Self, ProtocolError> {
        Ok(Self {
            run: request.run.parse()?,
            base: digest("base", &request.base)?,
            offset: request.offset,
        })
    }
}

/// One frame of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FramePart {
    /// Model version after the frame.
    pub version: u64,
    /// Bytes.
    pub len: u64,
    /// Digest of the bytes.
    pub digest: Digest,
}

/// What a fetch sends: frames of consecutive versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelHeader {
    frames: Vec<FramePart>,
    snapshot: bool,
    offset: u64,
}

impl ModelHeader {
    /// The whole model.
    pub fn snapshot(part: FramePart) -> Self {
        Self::after_snapshot(part, Vec::new())
    }

    /// The whole model of a version, and the model updates of the versions after it.
    pub fn after_snapshot(part: FramePart, steps: Vec<FramePart>) -> Self {
        Self {
            frames: [vec![part], steps].concat(),
            snapshot: true,
            offset: 0,
        }
    }

    /// Model updates; none if the client is up to date.
    pub fn steps(frames: Vec<FramePart>) -> Self {
        Self {
            frames,
            snapshot: false,
            offset: 0,
        }
    }

    /// Leaves out the first `offset` bytes of the frame that the request names as partial.
    pub fn resumed(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// The frames in sending order.
    pub fn frames(&self) -> &[FramePart] {
        &self.frames
    }

    /// Whether the first frame is a snapshot. All others are model updates.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot
    }

    /// The frames in sending order, with what each is.
    pub fn parts(&self) -> impl Iterator<Item = (FrameKind, FramePart)> {
        self.frames.iter().enumerate().map(|(at, part)| {
            let kind = if self.snapshot && at == 0 {
                FrameKind::Snapshot
            } else {
                FrameKind::ModelUpdate
            };
            (kind, *part)
        })
    }

    /// Bytes of the partial frame that are not sent.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of all frames that are sent.
    pub fn sent_bytes(&self) -> u64 {
        let bytes = self.frames.iter().fold(0u64, |sum, part| sum.saturating_add(part.len));
        bytes.saturating_sub(self.offset)
    }
}

impl From<&ModelHeader> for wire::ModelHeader {
    fn from(header: &ModelHeader) -> Self {
        Self {
            frames: header
                .frames
                .iter()
                .map(|p: &FramePart| wire::FramePart {
                    version: p.version,
                    len: p.len,
                    digest: p.digest.0.to_vec().into(),
                })
                .collect(),
            snapshot: header.snapshot,
            offset: header.offset,
        }
    }
}

impl TryFrom<wire::ModelHeader> for ModelHeader {
    type Error = ProtocolError;

    fn try_from(header: wire::ModelHeader) -> Result<Self, ProtocolError> {
        if header.frames.len() > MAX_CHAIN {
            return Err(ProtocolError::invalid(
                "frames",
                format!("{} is above {MAX_CHAIN}", header.frames.len()),
            ));
        }
        let frames = header
            .frames
            .into_iter()
            .map(|p: wire::FramePart| {
                Ok(FramePart {
                    version: p.version,
                    len: p.len,
                    digest: digest("digest", &p.digest)?,
                })
            })
            .collect::<Result<Vec<_>, ProtocolError>>()?;
        if !frames
            .windows(2)
            .all(|pair| pair[0].version.checked_add(1) == Some(pair[1].version))
        {
            return Err(ProtocolError::invalid("frames", "versions are not consecutive"));
        }
        if header.snapshot && frames.is_empty() {
            return Err(ProtocolError::invalid("frames", "a snapshot is at least one frame"));
        }
        Ok(Self {
            frames,
            snapshot: header.snapshot,
            offset: header.offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(version: u64) -> FramePart {
        FramePart {
            version,
            len: 7,
            digest: Digest::of(b"x"),
        }
    }

    #[test]
    fn headers_survive_the_wire() {
        for header in [
            ModelHeader::snapshot(part(3)),
            ModelHeader::after_snapshot(part(3), vec![part(4), part(5)]).resumed(6),
            ModelHeader::steps(vec![part(4), part(5)]),
            ModelHeader::steps(vec![]),
        ] {
            assert_eq!(ModelHeader::try_from(wire::ModelHeader::from(&header)).unwrap(), header);
        }
    }

    #[test]
    fn requests_survive_the_wire() {
        let partial = PartialFrame {
            digest: Digest::of(b"frame"),
            held: 9,
        };
        for partial in [None, Some(partial)] {
            let request = FetchRequest {
                run: "r".parse().unwrap(),
                held: Some(1),
                want: 2,
                partial,
            };
            let received = FetchRequest::try_from(wire::FetchRequest::from(request.clone())).unwrap();
            assert_eq!(received, request);
        }
    }

    #[test]
    fn a_snapshot_comes_first_and_model_updates_follow() {
        let header = ModelHeader::after_snapshot(part(3), vec![part(4)]).resumed(5);
        let kinds: Vec<_> = header.parts().map(|(kind, part)| (kind, part.version)).collect();
        assert_eq!(kinds, [(FrameKind::Snapshot, 3), (FrameKind::ModelUpdate, 4)]);
        assert_eq!(header.sent_bytes(), 9);
    }

    #[test]
    fn gaps_and_snapshots_without_a_frame_are_refused() {
        let gap = wire::ModelHeader::from(&ModelHeader::steps(vec![part(4), part(6)]));
        assert!(ModelHeader::try_from(gap).is_err());
        let mut none = wire::ModelHeader::from(&ModelHeader::steps(vec![]));
        none.snapshot = true;
        assert!(ModelHeader::try_from(none).is_err());
    }
}
