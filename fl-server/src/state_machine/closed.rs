//! The numbers of a closed round.

use fl_compress::{Digest, Stages};

use crate::clock::Millis;

/// How a model version was made: by a closed round, or by a rollback, which has no updates and no frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// Rounds behind the model, without those that were rolled back.
    pub depth: u64,
    /// For a rollback: the version whose model it has.
    pub base: Option<u64>,
    /// The round, which is also the version of its model.
    pub round: u64,
    pub attempts: u32,
    pub asked: u32,
    pub answered: u32,
    pub examples: u64,
    /// Training loss, the mean over the examples.
    pub loss: f64,
    /// Bytes of all updates' frames.
    pub up: u64,
    /// Digest of the model update's frame.
    pub frame: Digest,
    pub frame_len: u64,
    pub stages: Stages,
    pub model: Digest,
    pub opened: Millis,
    pub closed: Millis,
}
