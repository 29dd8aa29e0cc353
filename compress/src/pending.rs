//! A frame in flight, and the receiver's answer.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::fidelity::Fidelity;
use crate::frame::header::FrameHeader;
use crate::stages::Stages;

/// How the receiver answered a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ack {
    /// The receiver applied the frame: the memory no longer carries its content.
    Accepted,
    /// The receiver did not apply the frame (late, lost, round closed): its content returns to the residual. Without memory it
    /// is lost.
    Rejected,
    /// The receiver did not apply the frame and never will: its content is discarded. The residual keeps what the frame did
    /// not carry.
    Dropped,
}

/// A frame that was encoded and not settled yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Header of the frame.
    pub header: FrameHeader,
    /// The encoded update.
    pub frame: Vec<u8>,
    /// Digest of `frame`.
    pub digest: Digest,
    /// Bytes after each stage.
    pub stages: Stages,
    /// Target size under the budget, if the spec has one. The frame is larger if the budget also bounds the error and fewer
    /// bytes would exceed that bound, or if tensors without a step or a density take more.
    pub asked: Option<u64>,
    /// How much of the update each section carries, in the order of [`crate::Frame::sections`].
    pub fidelity: Vec<Fidelity>,
}
