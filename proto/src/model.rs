//! Fetching the model: the request, and the table of the frames that follow; and fetching its base.

use fl_compress::Digest;

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
}

impl From<FetchRequest> for wire::FetchRequest {
    fn from(request: FetchRequest) -> Self {
        Self {
            run: request.run.to_string(),
            held: request.held,
            want: request.want,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramePart {
    /// Model version after the frame.
    pub version: u64,
    /// Bytes.
    pub len: u64,
    /// Digest of the bytes.
    pub digest: Digest,
}

/// What a fetch sends: a snapshot, or the model updates after the version held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelHeader {
    /// The whole model.
    Snapshot(FramePart),
    /// Model updates of consecutive versions; empty if the client is up to date.
    Steps(Vec<FramePart>),
}

impl ModelHeader {
    /// The frames in sending order.
    pub fn frames(&self) -> &[FramePart] {
        match self {
            Self::Snapshot(part) => std::slice::from_ref(part),
            Self::Steps(parts) => parts,
        }
    }
}

impl From<&ModelHeader> for wire::ModelHeader {
    fn from(header: &ModelHeader) -> Self {
        let part = |p: &FramePart| wire::FramePart {
            version: p.version,
            len: p.len,
            digest: p.digest.0.to_vec().into(),
        };
        Self {
            frames: header.frames().iter().map(part).collect(),
            snapshot: matches!(header, ModelHeader::Snapshot(_)),
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
        let part = |p: wire::FramePart| {
            Ok(FramePart {
                version: p.version,
                len: p.len,
                digest: digest("digest", &p.digest)?,
            })
        };
        let parts = header
            .frames
            .into_iter()
            .map(part)
            .collect::<Result<Vec<_>, ProtocolError>>()?;
        if !parts
            .windows(2)
            .all(|pair| pair[0].version.checked_add(1) == Some(pair[1].version))
        {
            return Err(ProtocolError::invalid("frames", "versions are not consecutive"));
        }
        match (header.snapshot, parts.as_slice()) {
            (true, [part]) => Ok(Self::Snapshot(*part)),
            (true, _) => Err(ProtocolError::invalid("frames", "a snapshot is exactly one frame")),
            (false, _) => Ok(Self::Steps(parts)),
        }
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
            ModelHeader::Snapshot(part(3)),
            ModelHeader::Steps(vec![part(4), part(5)]),
            ModelHeader::Steps(vec![]),
        ] {
            assert_eq!(ModelHeader::try_from(wire::ModelHeader::from(&header)).unwrap(), header);
        }
    }

    #[test]
    fn gaps_and_double_snapshots_are_refused() {
        let gap = wire::ModelHeader::from(&ModelHeader::Steps(vec![part(4), part(6)]));
        assert!(ModelHeader::try_from(gap).is_err());
        let mut double = wire::ModelHeader::from(&ModelHeader::Steps(vec![part(4), part(5)]));
        double.snapshot = true;
        assert!(ModelHeader::try_from(double).is_err());
    }
}
