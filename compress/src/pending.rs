//! A frame on its way, and how the receiver answered it.

use crate::digest::Digest;
use crate::fidelity::Fidelity;
use crate::frame::header::FrameHeader;
use crate::stages::Stages;

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// Taken by the receiver: what it decoded is no longer owed.
    Accepted,
    /// Not taken (late, lost, round closed): its content is added back to the residual. Without memory it is lost.
    Rejected,
    /// Not taken and not wanted later: its content is forgotten. The residual keeps what the frame did not carry.
    Dropped,
}

/// A frame that was encoded and whose fate is not known yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Fixed part of the frame.
    pub header: FrameHeader,
    /// The encoded update.
    pub frame: Vec<u8>,
    /// Digest of `frame`.
    pub digest: Digest,
    /// Bytes after each stage.
    pub stages: Stages,
    /// Bytes that the budget asks for, if there is one. The frame has more if the budget bounds the error too and fewer
    /// bytes would pass that bound, or if what has no step or density to choose takes more.
    pub asked: Option<u64>,
    /// How much of the update each section carries, in the order of [`Frame::sections`]. Empty if the frame was read from a
    /// state of an older version, which did not have it.
    pub fidelity: Vec<Fidelity>,
}
